-- More live events, with ids in a gap among dead ones.
-- :first_id :count :keys
insert into outbox.events (id, aggregateid, type, payload) overriding system value
select :first_id + part * 100000 + f.n, 'order-' || 1 + f.n % :keys, 'order.changed', f.payload
from generate_series(0, (:count - 1) / 100000) as part, filled f where part * 100000 + f.n < :count;
