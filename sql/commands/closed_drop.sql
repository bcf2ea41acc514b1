-- Deletes the event that a closed key failed on and opens the key at its next event, if there is one: relays may have
-- passed that id already. A key that is paused besides keeps its entry. Everything here sees the table as it was, so the
-- head is told apart by its id.
-- :table, :id, :key_is (rows e of the table: the key's events, by $2); :closed as in closed_retry.sql
-- $1 queue text, $2 key or event id text, $3 only this event id bigint or null, $4 only errors like this text or null
-- -> count bigint: keys opened, also when the event was gone already
with head as (
    select p.event_id
      from outbox.parked p
     where p.queue = $1::text
       and p.next_at = 'infinity' and coalesce(p.resume_at, 'infinity') = 'infinity' and (p.attempts > 0 or p.last_error <> '')
       and :closed
       and ($3::bigint is null or p.event_id = $3::bigint)
       and ($4::text is null or p.last_error like $4)
), dropped as (
    delete from :table e using head h where e.:id = h.event_id
), next as (
    select h.event_id as head_id, pg_catalog.min(e.:id) as id
      from head h
      left join :table e on e.:id <> h.event_id and :key_is
     group by h.event_id
), moved as (
    update outbox.parked p
       set event_id = coalesce(n.id, p.event_id), attempts = 0, last_error = '', updated_at = pg_catalog.now(),
           next_at = case when p.resume_at is null then pg_catalog.now() else p.next_at end,
           resume_at = case when p.resume_at is not null then pg_catalog.now() end
      from next n
     where p.queue = $1::text and :closed and p.event_id = n.head_id and (n.id is not null or p.resume_at is not null)
), removed as (
    delete from outbox.parked p
     using next n
     where p.queue = $1::text and :closed and p.event_id = n.head_id and n.id is null and p.resume_at is null
)
select pg_catalog.count(*) from head;
