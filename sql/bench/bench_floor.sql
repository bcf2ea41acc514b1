-- One batch of the bare drain: rows that nobody else has, with what a relay reads of each. No key, no order among the
-- connections, no delivery. The oldest first: in no order it would be quicker where the table is larger than a quarter of
-- shared_buffers, as scans go on there where the last one ended, and slower everywhere else, as each batch would begin with
-- the pages that are empty by then.
-- Rows are locked when their places are known, so these are still theirs: by them it takes an eighth less than by id.
-- :state   the schema of a bench
-- :rows    how many: a number, which the planner knows, and no parameter
-- -> the event, by column
delete from :state.events
where ctid = any (array(select ctid from :state.events order by id limit :rows for update skip locked))
returning id, created_at, aggregateid, type, payload::text, headers::text, event_id, traceparent
