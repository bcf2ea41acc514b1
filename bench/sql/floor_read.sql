-- The one event that is known to be there.
-- $1 bigint id
select payload::text, aggregateid, type, headers::text, event_id, traceparent, created_at from outbox.events where id = $1::bigint
