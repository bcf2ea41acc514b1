-- Says to producers that a relay rests: they try to get the same locks for themselves, and notify when that fails. In one
-- expression, so that the session has both locks or none. A lock is refused while a producer asks.
-- Classes are FNV-1a of "pgcourier:wake table" and of "pgcourier:wake queue".
--
-- $1 int    oid of the queue's table; from 2^31 on as a negative number
-- $2 text   queue
-- One row: locked boolean; queue_number bigint, what notifications call the queue
select case when not pg_catalog.pg_try_advisory_lock_shared(-1818282541, $1::int) then false
            when pg_catalog.pg_try_advisory_lock_shared(1189806900, pg_catalog.hashtext($2::text)) then true
            else not pg_catalog.pg_advisory_unlock_shared(-1818282541, $1::int) end as locked,
       pg_catalog.hashtext($2::text)::bigint as queue_number
