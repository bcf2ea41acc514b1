-- Events of keys that take turns.
-- :first :count   number of the first one's turn, and how many: no more than `filled` has
-- :keys           how many keys
insert into outbox.events (aggregateid, type, payload)
select 'order-' || 1 + (:first + n) % :keys, 'order.changed', payload from filled where n < :count;
