-- Forgets the dead letters of one key or event.
-- :match as in dead_retry.sql; $1 queue text, $2 key or event id text, $3 only this event id bigint or null, $4 only errors like this text or null
-- -> count bigint
with taken as (
    delete from outbox.dead d
     where d.queue = $1::text
       and :match
       and ($3::bigint is null or d.event_id = $3::bigint)
       and ($4::text is null or d.reason like $4)
    returning 1
)
select pg_catalog.count(*) from taken;
