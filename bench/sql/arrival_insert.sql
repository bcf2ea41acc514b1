-- One new event, of keys that had none before the producers began, and its arrival.
-- $1 int number of the connection
with event as (
    insert into outbox.events (aggregateid, type, payload)
    values (format('new-%s-%s', $1::int, floor(random() * 2500)), 'order.changed',
            ('{"note": "' || rpad('', 288, 'x') || '"}')::jsonb)
    returning id, created_at)
insert into public.arrivals select id, created_at from event returning id, created_at
