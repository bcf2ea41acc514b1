-- Makes keys wait: their head was not delivered. One that somebody has paused meanwhile waits for both. A worker whose lease
-- had run out has lost it now: its token is gone.
--
-- But a lease that still runs is left alone, unless it is ours: a settlement may come by another connection than that which had
-- the locks (relay/side/side.c), and when those are gone meanwhile, the key is somebody else's.
--
-- For the same reason an entry is made only while the event is there: somebody else may have delivered it, and the key would
-- wait for nothing, or be closed for good. What waits already is left as it is, to be found by the next claim; a lease of ours
-- ends at once.
--
-- An event that was put back while its key was leased, to which the entry points, waits for none that comes after it: it is next,
-- at once, and has no failures; unless the key is closed. So is one that has become due meanwhile (delayed_due.sql), whether the
-- key was leased or locked. If it was locked, the entry may also point at what was delivered before this event: that is gone. And
-- what lies between the two and shows only now is not passed: see horizon_floor.sql. A key that
-- is closed has to point at what closed it: what has shown late is found by the sweep then.
--
-- A key with many events keeps its entry. So first_failed_at is set with an event's first failure, and where it comes to wait for
-- another one: by a lease of ours, when that was granted (lease_grant.sql).
--
-- :table :where :id :key :state   as in lock_ids.sql
-- :behind_entry                   the condition that picks the events of an entry p's key from the one on that it points at; without
--                                 an index, this one only
-- $1 text      queue
-- $2 bigint[]  the heads' ids
-- $3 text[]    their keys; null: an event without a key, which waits alone
-- $4 bigint[]  failures so far
-- $5 bigint[]  microseconds to wait; negative: closed until somebody resumes it
-- $6 text[]    why
-- $7 bigint[]  the event that it waits for, the least bigint for none
-- $8 text[]    tokens of our leases; settle_leases.sql has locked their entries
with head as (
    select h.id, h.key, h.attempts, h.why, nullif(h.after_id, -9223372036854775808) as after_id,
           case when there.yes is null then pg_catalog.clock_timestamp()
                when h.delay_us < 0 then 'infinity'
                else pg_catalog.clock_timestamp() + h.delay_us * interval '1 microsecond' end as next_at
    from rows from (pg_catalog.unnest($2::bigint[]), pg_catalog.unnest($3::text[]), pg_catalog.unnest($4::bigint[]),
                    pg_catalog.unnest($5::bigint[]), pg_catalog.unnest($6::text[]), pg_catalog.unnest($7::bigint[]))
         as h (id, key, attempts, delay_us, why, after_id)
    left join lateral (
        select true as yes from :table e where :id between h.id and h.id and (:where) order by :id offset 0) as there on true
    where there.yes or pg_catalog.cardinality($8::text[]) > 0
), keyed as (
    insert into :state.parked as p (queue, key, event_id, keyless, attempts, next_at, last_error, after_id, first_failed_at, updated_at)
    select $1::text, key, id, false, attempts, next_at, why, after_id, pg_catalog.clock_timestamp(), pg_catalog.clock_timestamp()
    from head where key is not null order by key collate "C"
    on conflict (queue, key) where not keyless do update
    set (event_id, attempts, last_error, next_at, resume_at, after_id, first_failed_at) = (
            select case when w.ahead then p.event_id else excluded.event_id end,
                   case when w.ahead then 0 else excluded.attempts end,
                   case when w.ahead then '' else excluded.last_error end,
                   case when p.resume_at is null then w.until else p.next_at end,
                   case when p.resume_at is not null then w.until end,
                   case when not w.ahead then excluded.after_id end,
                   case when w.begins then excluded.first_failed_at else p.first_failed_at end
            from (select o.ahead, case when o.ahead then pg_catalog.clock_timestamp() else excluded.next_at end as until,
                         not o.ahead and case when excluded.after_id is null then p.attempts = 0 or excluded.attempts = 1
                                              else p.event_id <> excluded.event_id or (p.after_id is null and not o.ours) end as begins
                  from (select l.ours, case when l.ours then p.event_id < p.taken_id
                                            else p.event_id < excluded.event_id and exists (
                                                select from :table e
                                                where :behind_entry and :id < excluded.event_id and (:where)
                                                order by :key, :id offset 0) end
                                       and (excluded.attempts = 0 or excluded.next_at < 'infinity') as ahead
                        from (select coalesce(p.token = any (select pg_catalog.unnest($8::text[]::uuid[])), false) as ours) as l) as o) as w),
        updated_at = excluded.updated_at, token = null
    where p.token is null or p.token = any (select pg_catalog.unnest($8::text[]::uuid[])) or coalesce(p.resume_at, p.next_at) <= pg_catalog.clock_timestamp()
)
insert into :state.parked as p (queue, key, event_id, keyless, attempts, next_at, last_error, after_id, first_failed_at, updated_at)
select $1::text, '', id, true, attempts, next_at, why, after_id, pg_catalog.clock_timestamp(), pg_catalog.clock_timestamp()
from head where key is null order by id
on conflict (queue, event_id) where keyless do update
set attempts = excluded.attempts, next_at = excluded.next_at, last_error = excluded.last_error,
    first_failed_at = case when case when excluded.after_id is null then p.attempts = 0 or excluded.attempts = 1
                                     else p.after_id is null and (p.token = any (select pg_catalog.unnest($8::text[]::uuid[]))) is not true end
                           then excluded.first_failed_at else p.first_failed_at end,
    updated_at = excluded.updated_at, token = null, after_id = excluded.after_id
where p.token is null or p.token = any (select pg_catalog.unnest($8::text[]::uuid[])) or p.next_at <= pg_catalog.clock_timestamp()
