-- A key as outbox.parked spells it.
-- :written ($1 as a value of the key column's type), :hash (of it); $1 text
-- -> key text, null: it is no key of this table; hash bigint: second half of its delivery lock
select (:written)::text, (:hash)::bigint;
