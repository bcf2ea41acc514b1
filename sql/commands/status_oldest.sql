-- The age of the event with the smallest id of those that will be delivered: a closed key's will not, until somebody
-- resumes it. The view is what outbox_monitor may read.
--
-- :table, :where, :id, :key, :created_at (or null)
-- $1 queue text
-- -> seconds double precision, or null
select case when pg_catalog.isfinite((:created_at)::timestamptz) then extract(epoch from pg_catalog.clock_timestamp() - (:created_at)::timestamptz) end
  from :table e
 where (:where)
   and case when (:key)::text is null then not exists (
       select from outbox.status_closed c
        where c.queue = $1::text and c.keyless and c.event_id between :id and :id
        order by c.event_id offset 0)
   else not exists (
       select from outbox.status_closed c
        where c.queue = $1::text and not c.keyless
          and c.key between ((:key)::text collate "default") and ((:key)::text collate "default")
        order by c.key offset 0) end
 order by :id
 limit 1;
