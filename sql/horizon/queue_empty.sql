-- Is there anything left to deliver? Events of closed keys do not count: somebody has to open them first.
--
-- :table :where :key :id   as in per_key_lock.sql
-- $1 text   queue
-- No row when nothing is left, else one.
select 1 as waiting
from :table e
where (:where)
  and not exists (
      select from outbox.parked p
      where p.queue = $1::text and p.next_at = 'infinity'
        and (not p.keyless and p.key = (:key)::text or p.keyless and p.event_id = :id))
limit 1
