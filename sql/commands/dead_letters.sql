-- The dead letters that one `dead retry` or `dead drop` goes through, those of a key together and in the order of their ids.
-- $1 queue text, $2 key text or null, $3 event id bigint or null, $4 pattern text of the error, as for LIKE, or null
-- -> dead_id bigint, event_id bigint, key text (null: without a key)
select d.dead_id, d.event_id, d.key
  from outbox.dead d
 where d.queue = $1
   and ($2::text is null or d.key = $2)
   and ($3::bigint is null or d.event_id = $3)
   and ($4::text is null or d.reason like $4)
 order by d.key, d.event_id, d.dead_id;
