-- The queues that the database knows of, by name.
-- -> name text
select n.queue from outbox.queue_names() as n (queue) order by 1;
