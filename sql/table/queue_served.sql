-- Makes the name of a relay's queue, and its table, known to SQL.
-- $1 queue text
-- $2 its table, oid
-- $3 the class of its locks, integer
-- $4 the type of its key: none, bigint, text or uuid
-- $5 text   the name of its id; null where it has a `where`, which only the configuration knows
-- $6 text   that of its key, or null
-- $7 text   that of its created_at, or null
-- -> (a column without meaning)
select outbox.note_served($1::text, $2::oid, $3::integer, $4::text,
                          case when $5::text is not null then pg_catalog.jsonb_build_object('id', $5::text, 'key', $6::text, 'created_at', $7::text) end);
