-- What a producer of an event does, for pgbench. TABLE stands for the table's name.
\set key random(1, 20000)
insert into TABLE (aggregateid, type, payload) values ('order-' || :key, 'order.changed', 'PAYLOAD');
