-- One event into outbox.events.
-- $1 key text, $2 type text, $3 payload jsonb, $4 aggregatetype text, $5 headers jsonb, $6 traceparent text, $7 not_before timestamptz,
-- $8 dedupe_key text, $9 on_duplicate text
-- -> id bigint; null: a duplicate that is ignored
select outbox.publish($1, $2, $3::jsonb, $4, $5::jsonb, $6, $7::timestamptz, $8, coalesce($9, 'ignore'));
