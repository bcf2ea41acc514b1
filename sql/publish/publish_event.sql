-- One event into outbox.events.
-- $1 key text, $2 type text, $3 payload jsonb, $4 aggregatetype text, $5 headers jsonb, $6 traceparent text
-- -> id bigint
select outbox.publish($1, $2, $3::jsonb, $4, $5::jsonb, $6);
