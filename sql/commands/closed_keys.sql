-- The closed keys that one `dead retry` or `dead drop` goes through, and the events without a key that wait like these.
-- $1 queue text, $2 key text or null, $3 event id bigint or null, $4 pattern text of the error, as for LIKE, or null
-- -> key text (null: without a key), event_id text (only without a key)
select case when not p.keyless then p.key end, case when p.keyless then p.event_id end
  from outbox.parked p
 where p.next_at = 'infinity' and coalesce(p.resume_at, 'infinity') = 'infinity' and (p.attempts > 0 or p.last_error <> '')
   and p.queue = $1
   and ($2::text is null or (p.key = $2 and not p.keyless))
   and ($3::bigint is null or p.event_id = $3)
   and ($4::text is null or p.last_error like $4)
 order by 1, 2;
