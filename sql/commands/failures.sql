-- What events failed with, most often first.
-- $1 queue text or null, $2 limit bigint
-- -> dead bigint, waiting bigint, estimated boolean, first_at text, last_at text, queue text, error text, json
select f.dead, f.waiting, f.estimated,
       pg_catalog.to_char(f.first_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
       pg_catalog.to_char(f.last_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
       f.queue, f.error, pg_catalog.row_to_json(f.*)
  from outbox.failures f
 where $1::text is null or f.queue = $1
 order by f.dead + f.waiting desc, f.queue, f.error
 limit $2;
