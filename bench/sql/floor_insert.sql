-- One event of 300 bytes. Ids of one key must be committed in order, so each connection has keys of its own.
-- $1 int number of the connection
insert into outbox.events (aggregateid, type, payload)
values (format('order-%s-%s', $1::int, floor(random() * 2500)), 'order.changed',
        ('{"note": "' || rpad('', 288, 'x') || '"}')::jsonb)
returning id, created_at
