-- A key as outbox.parked spells it.
-- :key ($1 as a value of the key column's type); $1 text
-- -> key text, null: it is no key of this table; hash bigint: second half of its delivery lock
select (:key)::text, (:hash)::bigint;
