-- The same by outbox.publish(), for pgbench.
\set key random(1, 20000)
select outbox.publish('order-' || :key, 'order.changed', 'PAYLOAD');
