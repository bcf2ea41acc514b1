-- The relay is awake: producers need not notify it.
--
-- $1 int    oid of the queue's table, as in rest_lock.sql
-- $2 text   queue
-- One row: unlocked_queue, unlocked_table boolean
select pg_catalog.pg_advisory_unlock_shared(1189806900, pg_catalog.hashtext($2::text)) as unlocked_queue,
       pg_catalog.pg_advisory_unlock_shared(-1818282541, $1::int) as unlocked_table
