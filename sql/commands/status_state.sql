-- What is kept beside a queue's table. The views, and the table of pauses, are what outbox_monitor may read.
-- $1 queue text
-- -> parked bigint (closed and paused ones are not among them), closed bigint, dead bigint, paused bigint (keys),
--    since text, by text, reason text: of the queue's own pause; null: it is not paused
select coalesce(p.keys - p.closed - p.paused, 0), coalesce(p.closed, 0),
       coalesce((select d.events from outbox.status_dead d where d.queue = $1), 0), coalesce(p.paused, 0),
       pg_catalog.to_char(q.since at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), q.by, q.reason
  from (select) one
  left join outbox.status_parked p on p.queue = $1
  left join outbox.paused q on q.queue = $1 and q.key is null;
