-- Dead rows at both ends of the ids and nothing between, which vacuum will not touch.
-- :dead   how many at each end
-- :gap    how many ids between them
alter table outbox.events set (autovacuum_enabled = false);
truncate outbox.events restart identity;
-- The indexes at last: they are the same then, and soon done.
alter table outbox.events drop constraint events_pkey;
drop index outbox.events_key;
insert into outbox.events (aggregateid, type, payload)
select 'order-' || 1 + i % 50000, 'order.changed', f.payload
from generate_series(0, :dead - 1) as i join filled f on f.n = i % 100000;
select setval(pg_get_serial_sequence('outbox.events', 'id'), :dead + :gap);
insert into outbox.events (aggregateid, type, payload)
select 'order-' || 1 + i % 50000, 'order.changed', f.payload
from generate_series(0, :dead - 1) as i join filled f on f.n = i % 100000;
alter table outbox.events add constraint events_pkey primary key (id);
create index events_key on outbox.events (aggregateid, id);
analyze outbox.events;
delete from outbox.events;
checkpoint;
