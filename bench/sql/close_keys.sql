-- Keys that are closed, with one event each: at the lower end of a table that is empty.
-- :count :queue
with closed as (
    insert into outbox.events (aggregateid, type, payload)
    select 'closed-' || n, 'order.changed', payload from filled where n < :count returning id, aggregateid
)
insert into outbox.parked (queue, key, event_id, attempts, next_at, last_error)
select :'queue', aggregateid, id, 1, 'infinity', 'refused' from closed;
