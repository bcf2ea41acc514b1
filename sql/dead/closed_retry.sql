-- Lets the relays try a closed key again, from the event it failed on.
-- :closed (rows p of outbox.parked, by $2); $1 queue text, $2 key or event id text, $3 only this event id bigint or null
-- -> count bigint
with resumed as (
    update outbox.parked p
       set next_at = pg_catalog.now(), attempts = 0, updated_at = pg_catalog.now()
     where p.queue = $1::text
       and p.next_at = 'infinity'
       and :closed
       and ($3::bigint is null or p.event_id = $3::bigint)
    returning 1
)
select pg_catalog.count(*) from resumed;
