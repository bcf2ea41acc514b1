-- Makes keys wait: their head was not delivered. One that somebody has paused meanwhile waits for both. A worker whose lease
-- had run out has lost it now: its token is gone.
--
-- But a lease that still runs is left alone, unless it is ours: a settlement may come by another connection than that which had
-- the locks (relay/side.c), and when those are gone meanwhile, the key is somebody else's.
--
-- For the same reason an entry is made only while the event is there: somebody else may have delivered it, and the key would
-- wait for nothing, or be closed for good. What waits already is left as it is, to be found by the next claim; a lease of ours
-- ends at once.
--
-- An event that was put back while its key was leased, to which the entry points, waits for none that comes after it: it is next,
-- at once, and has no failures; unless the key is closed. (Without a lease the key's lock keeps it from being put back.)
--
-- :table :where :id :state   as in per_key_lock.sql
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
    insert into :state.parked as p (queue, key, event_id, keyless, attempts, next_at, last_error, after_id)
    select $1::text, key, id, false, attempts, next_at, why, after_id from head where key is not null order by key collate "C"
    on conflict (queue, key) where not keyless do update
    set (event_id, attempts, last_error, next_at, resume_at, after_id) = (
            select case when w.ahead then p.event_id else excluded.event_id end,
                   case when w.ahead then 0 else excluded.attempts end,
                   case when w.ahead then '' else excluded.last_error end,
                   case when p.resume_at is null then w.until else p.next_at end,
                   case when p.resume_at is not null then w.until end,
                   case when not w.ahead then excluded.after_id end
            from (select o.ahead, case when o.ahead then pg_catalog.clock_timestamp() else excluded.next_at end as until
                  from (select coalesce(p.token = any (select pg_catalog.unnest($8::text[]::uuid[])) and p.event_id < p.taken_id
                                        and (excluded.attempts = 0 or excluded.next_at < 'infinity'), false) as ahead) as o) as w),
        updated_at = pg_catalog.clock_timestamp(), token = null
    where p.token is null or p.token = any (select pg_catalog.unnest($8::text[]::uuid[])) or coalesce(p.resume_at, p.next_at) <= pg_catalog.clock_timestamp()
)
insert into :state.parked as p (queue, key, event_id, keyless, attempts, next_at, last_error, after_id)
select $1::text, '', id, true, attempts, next_at, why, after_id from head where key is null order by id
on conflict (queue, event_id) where keyless do update
set attempts = excluded.attempts, next_at = excluded.next_at, last_error = excluded.last_error,
    updated_at = pg_catalog.clock_timestamp(), token = null, after_id = excluded.after_id
where p.token is null or p.token = any (select pg_catalog.unnest($8::text[]::uuid[])) or p.next_at <= pg_catalog.clock_timestamp()
