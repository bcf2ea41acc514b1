-- Forgets dead letters.
-- $1 queue text, $2 bigint[] dead_ids
-- -> as dead_retry.sql
with taken as (
    delete from outbox.dead d where d.queue = $1::text and d.dead_id = any ($2::bigint[]) returning 1
)
select pg_catalog.count(*), pg_catalog.count(*), null::bigint, null::text, null::text from taken;
