-- Makes the name of a relay's queue known to SQL.
-- $1 queue text
-- -> (a column without meaning)
select outbox.note_served($1::text);
