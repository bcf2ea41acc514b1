-- Chooses events to be sent again, or only counts them. Columns of the queue's table come quoted.
-- $1 queue text, $2 source text, $3 ids bigint[] or null, $4 key text or null, $5 type text or null, $6 since timestamptz or null,
-- $7 until timestamptz or null, $8 sink text or null, $9 destination text or null, $10 rate int or null, $11 dry_run boolean,
-- $12 table oid, $13 id, $14 key or null, $15 type or null, $16 payload or null, $17 headers or null, $18 after text,
-- $19 then text or null, $20 text[] names that the table has no more, $21 text[] where their values go, null for nowhere
-- -> replay_id bigint, null when there is nothing to send or dry_run; events bigint
select r.replay_id, r.events
  from outbox.replay($1::text, $2::text, $3::bigint[], $4::text, $5::text, $6::timestamptz, $7::timestamptz, $8::text, $9::text, $10::int,
                     $11::boolean, pg_catalog.jsonb_build_object(
                         'table', $12::oid, 'id', (pg_catalog.parse_ident($13::text))[1], 'key', (pg_catalog.parse_ident($14::text))[1],
                         'type', (pg_catalog.parse_ident($15::text))[1], 'payload', (pg_catalog.parse_ident($16::text))[1],
                         'headers', (pg_catalog.parse_ident($17::text))[1], 'after', $18::text, 'then', $19::text,
                         'columns', pg_catalog.jsonb_object($20::text[], $21::text[]))) r;
