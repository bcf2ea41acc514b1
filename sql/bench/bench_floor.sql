-- One batch of the bare drain: 1,000 rows that nobody else has, with what a relay reads of each. No key, no order among the
-- connections, no delivery.
-- :state   the schema of a bench
-- -> the event, by column
delete from :state.events
where id = any (array(select id from :state.events order by id limit 1000 for update skip locked))
returning id, created_at, aggregateid, type, payload::text, headers::text, event_id, traceparent
