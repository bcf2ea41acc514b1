-- What is kept beside a queue's table. The views are what outbox_monitor may read.
-- $1 queue text
-- -> parked bigint (closed and paused ones are not among them), closed bigint, dead bigint
select coalesce((select p.keys - p.closed - p.paused from outbox.status_parked p where p.queue = $1), 0),
       coalesce((select p.closed from outbox.status_parked p where p.queue = $1), 0),
       coalesce((select d.events from outbox.status_dead d where d.queue = $1), 0);
