-- The head that a key waited for is delivered or dead. While the key has more events, its entry stays and points at
-- the next one: an event that was put back with an old id may lie below the position marks of every relay.
--
-- :table :where :id :key :key_type   as in per_key_lock.sql
-- $1 text      queue
-- $2 text[]    keys
-- $3 bigint[]  heads of events without a key
with next as materialized (
    select k.name, (select min(:id) from :table e where :key = k.name:::key_type and (:where)) as id
    from unnest($2::text[]) as k (name)
), moved as (
    update outbox.parked p
    set event_id = n.id, attempts = 0, next_at = clock_timestamp(), last_error = '', updated_at = clock_timestamp()
    from next n
    where p.queue = $1::text and not p.keyless and p.key = n.name and n.id is not null
)
delete from outbox.parked p
where p.queue = $1::text
  and (not p.keyless and p.key in (select n.name from next n where n.id is null)
       or p.keyless and p.event_id = any ($3::bigint[]))
