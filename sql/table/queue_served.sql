-- Makes the name of a relay's queue, and its table, known to SQL.
-- $1 queue text
-- $2 its table, oid
-- -> (a column without meaning)
select outbox.note_served($1::text, $2::oid);
