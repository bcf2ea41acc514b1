-- Keys that stay closed until somebody opens them, with the event they failed on; paused ones only if they are closed besides. The columns of dead_list.sql.
-- $1 queue text or null, $2 key text or null, $3 event id bigint or null, $4 errors like this text or null, $5 limit bigint
-- -> queue, event_id, key, type (null), attempts, closed_at text, reason, json
select p.queue, p.event_id, case when not p.keyless then p.key end, null::text, p.attempts,
       pg_catalog.to_char(p.updated_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
       p.last_error,
       pg_catalog.json_build_object('state', 'closed', 'queue', p.queue, 'id', p.event_id,
                         'key', case when not p.keyless then p.key end, 'attempts', p.attempts,
                         'first_failed_at', p.first_failed_at, 'closed_at', p.updated_at, 'reason', p.last_error)
  from outbox.parked p
 where p.next_at = 'infinity' and coalesce(p.resume_at, 'infinity') = 'infinity' and (p.attempts > 0 or p.last_error <> '')
   and ($1::text is null or p.queue = $1)
   and ($2::text is null or (p.key = $2 and not p.keyless))
   and ($3::bigint is null or p.event_id = $3)
   and ($4::text is null or p.last_error like $4)
 order by p.updated_at desc, p.event_id
 limit $5;
