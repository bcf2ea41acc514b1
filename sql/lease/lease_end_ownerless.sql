-- The terms of leases whose backend has ended end now: they are taken over as any that have run out. The owners are found by
-- one look into the index for each. A backend whose start we may not see is taken to be there: then only the term counts. An
-- entry that somebody has locked is looked at another time, so that nobody waits here for who does the same.
--
-- Relays run this, and so do workers: end_ownerless() of sql/schema/011_workers_take.sql.
--
-- $1 text   queue
-- ended bigint  leases whose term has ended
with recursive owner as (
    (select p.backend_pid, p.backend_start from outbox.parked p
     where p.queue = $1::text and p.token is not null and p.backend_pid is not null
     order by p.backend_pid, p.backend_start limit 1)
    union all
    select n.backend_pid, n.backend_start
    from owner o
    cross join lateral (
        select p.backend_pid, p.backend_start from outbox.parked p
        where p.queue = $1::text and p.token is not null and p.backend_pid is not null
          and (p.backend_pid, p.backend_start) > (o.backend_pid, o.backend_start)
        order by p.backend_pid, p.backend_start limit 1) as n
), over as materialized (
    select o.* from owner o
    where not exists (select from pg_catalog.pg_stat_get_activity(o.backend_pid) a
                      where a.backend_start is null or a.backend_start = o.backend_start)
), ended as (
    update outbox.parked p
    set next_at = case when p.resume_at is null then least(p.next_at, pg_catalog.clock_timestamp()) else p.next_at end,
        resume_at = case when p.resume_at is not null then least(p.resume_at, pg_catalog.clock_timestamp()) end,
        backend_pid = null, backend_start = null
    from over o
    cross join lateral (
        select w.ctid as place from outbox.parked w
        where w.queue = $1::text and w.token is not null and w.backend_pid = o.backend_pid and w.backend_start = o.backend_start
        for update skip locked) as l
    where p.ctid = l.place
    returning 1
)
select pg_catalog.count(*) as ended from ended
