-- How much of a queue is on its way: delivery locks that are held, and leases that are not over. pg_locks shows the halves of
-- an advisory lock as unsigned numbers. A lease is written before its claim's lock goes: at most both count.
-- $1 lock class integer, $2 bigint: only the lock with this second half; or null
-- $3 queue text, $4 text: only the lease of this key; or null
-- -> count bigint
select (select pg_catalog.count(*)
          from pg_catalog.pg_locks l
         where l.locktype = 'advisory' and l.objsubid = 2 and l.granted
           and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
           and l.classid::bigint = ($1::bigint & 4294967295)
           and ($2::bigint is null or l.objid::bigint = ($2::bigint & 4294967295)))
       + (select pg_catalog.count(*)
            from outbox.parked p
           where p.queue = $3::text and p.token is not null and coalesce(p.resume_at, p.next_at) > pg_catalog.clock_timestamp()
             and ($4::text is null or (p.key = $4::text and not p.keyless)));
