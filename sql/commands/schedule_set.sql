-- Makes a schedule, or makes it anew.
-- $1 name text, $2 queue text, $3 every interval or null, $4 cron text or null, $5 zone text, $6 key text or null,
-- $7 type text or null, $8 payload jsonb or null, $9 missed text
-- -> next text
select pg_catalog.to_char(outbox.schedule_set($1, $2, $3::interval, $4, $5, $6, $7, $8::jsonb, null, $9) at time zone 'UTC',
                          'YYYY-MM-DD"T"HH24:MI:SS"Z"');
