-- How many leases of a queue are not over. A lease is committed before its claim's lock goes: so this is asked after
-- pause_locks.sql, in a statement of its own, and what had its lock there is found here at the latest.
-- $1 queue text, $2 text: only the lease of this key; or null
-- -> count bigint
select pg_catalog.count(*)
  from outbox.parked p
 where p.queue = $1::text and p.token is not null and coalesce(p.resume_at, p.next_at) > pg_catalog.clock_timestamp()
   and ($2::text is null or (p.key = $2::text and not p.keyless));
