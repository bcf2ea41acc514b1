-- Events for a worker, each as one line of JSON: the columns of outbox.take().
-- $1 queue text, $2 count int, $3 worker text or null, $4 lease interval
-- -> json text
select pg_catalog.row_to_json(t.*)::text from outbox.take($1, $2::int, $3, $4::interval) t;
