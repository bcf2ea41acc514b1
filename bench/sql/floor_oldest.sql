-- One batch of the bare drain of these ids, the oldest first: 1,000 rows that nobody else has, with what a relay reads of each.
delete from outbox.events
where ctid = any (array(select ctid from outbox.events where id between FIRST_ID and LAST_ID order by id limit 1000 for update skip locked))
returning id, created_at, aggregateid, type, payload::text, headers::text, event_id, traceparent
