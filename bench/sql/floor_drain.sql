-- One batch of the bare drain: 1,000 rows that nobody else has, with what a relay reads of each. No key, no order, no
-- delivery.
delete from outbox.events
where ctid = any (array(select ctid from outbox.events limit 1000 for update skip locked))
returning id, created_at, aggregateid, type, payload::text, headers::text, event_id, traceparent
