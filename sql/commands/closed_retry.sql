-- Lets the relays try a closed key again, from the event it failed on; one that is paused besides when it is resumed.
-- :closed (rows p of outbox.parked, by $2); $1 queue text, $2 key or event id text, $3 only this event id bigint or null, $4 only errors like this text or null
-- -> count bigint
with resumed as (
    update outbox.parked p
       set next_at = case when p.resume_at is null then pg_catalog.now() else p.next_at end,
           resume_at = case when p.resume_at is not null then pg_catalog.now() end, attempts = 0, updated_at = pg_catalog.now()
     where p.queue = $1::text
       and p.next_at = 'infinity' and coalesce(p.resume_at, 'infinity') = 'infinity' and (p.attempts > 0 or p.last_error <> '')
       and :closed
       and ($3::bigint is null or p.event_id = $3::bigint)
       and ($4::text is null or p.last_error like $4)
    returning 1
)
select pg_catalog.count(*) from resumed;
