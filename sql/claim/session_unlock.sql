-- What session_lock.sql took is given back, once what became of the keys is committed. Not before: whoever takes the lock
-- next reads what is left in the table. One lock for each key that is named: a transaction's lock of the same hash stays.
--
-- :key_type :lock_hash   as in lock_ids.sql
--
-- $1 integer    the first half of the advisory lock
-- $2 text[]     keys
-- $3 bigint[]   events without a key
--
-- One row: freed bigint, how many locks; all of them, or something is wrong
select pg_catalog.count(*) filter (where pg_catalog.pg_advisory_unlock($1::integer, :lock_hash)) as freed
from (select name:::key_type as key, null::bigint as keyless from pg_catalog.unnest($2::text[]) as n (name)
      union all select null, id from pg_catalog.unnest($3::bigint[]) as i (id)) as k
