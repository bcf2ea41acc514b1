-- The session takes the locks of keys that its transaction holds, and so goes on holding them when that ends: the
-- straggler's key among those that are done. A lock that a session has already is counted once more in the session itself:
-- nobody is waited for and no slot of the server's lock table is taken. session_unlock.sql gives it back.
--
-- :key_type :lock_hash   as in lock_ids.sql
--
-- $1 integer    the first half of the advisory lock
-- $2 text[]     keys
-- $3 bigint[]   events without a key
--
-- One row: kept bigint, how many locks; all of them, or something is wrong
select pg_catalog.count(*) filter (where pg_catalog.pg_try_advisory_lock($1::integer, :lock_hash)) as kept
from (select name:::key_type as key, null::bigint as keyless from pg_catalog.unnest($2::text[]) as n (name)
      union all select null, id from pg_catalog.unnest($3::bigint[]) as i (id)) as k
