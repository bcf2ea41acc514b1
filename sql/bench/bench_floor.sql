-- One batch of the bare drain: rows that nobody else has, with what a relay reads of each. No key, no order, no
-- delivery.
-- :state   the schema of a bench
-- :rows    how many: a number, which the planner knows, and no parameter
-- -> the event, by column
delete from :state.events
where ctid = any (array(select ctid from :state.events limit :rows for update skip locked))
returning id, created_at, aggregateid, type, payload::text, headers::text, event_id, traceparent
