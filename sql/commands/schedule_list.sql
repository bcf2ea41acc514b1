-- What there is, by name.
-- $1 queue text, null: of any
-- -> name text, queue text, rhythm text (with its zone), missed text, next text, runs bigint, last_error text
select s.name, s.queue, coalesce('every ' || s.every::text, s.cron || ' ' || s.zone), s.missed,
       pg_catalog.to_char(s.next_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), s.runs, s.last_error
  from outbox.schedule s
 where $1::text is null or s.queue = $1
 order by s.name;
