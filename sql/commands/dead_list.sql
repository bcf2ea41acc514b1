-- Dead letters, the latest first.
-- $1 queue text or null, $2 key text or null, $3 event id bigint or null, $4 errors like this text or null, $5 limit bigint
-- -> queue, event_id, key, type, attempts, died_at text, reason, json (all but the row itself)
select d.queue, d.event_id, d.key, d.type, d.attempts,
       pg_catalog.to_char(d.died_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
       d.reason,
       pg_catalog.json_build_object('state', 'dead', 'queue', d.queue, 'id', d.event_id, 'key', d.key, 'type', d.type,
                         'attempts', d.attempts, 'created_at', d.created_at, 'died_at', d.died_at,
                         'table', d.source_table, 'reason', d.reason)
  from outbox.dead d
 where ($1::text is null or d.queue = $1)
   and ($2::text is null or d.key = $2)
   and ($3::bigint is null or d.event_id = $3)
   and ($4::text is null or d.reason like $4)
 order by d.dead_id desc
 limit $5;
