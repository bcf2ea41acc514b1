-- One section of the first half of a claim where no event waits for another, see lock_ids.sql: look at a stretch of ids, or of
-- priorities, from one of its ends, choose events, lock them, and leave their ids for the second half (unordered_read.sql).
--
-- The places count over all sections, so what one leaves the next ones have. Events are chosen behind materialized fences and
-- locked one by one until there are enough, so that what is locked is what is returned, whatever the plan.
--
-- :table :where :state :id   as in lock_ids.sql, and parked is asked as there
-- :seen :stretch :sort   what is read of an event e, which ones are looked at, and from which end
-- :all       true; or false: what waits is no row that was looked at. 100,000 delayed events of a high priority would be all
-- :first     the order in which events that were found, f, get the places
-- :by        what says how far the section has looked: the id of an event o, or its priority
-- :try_lock  locks event k.keyless, or says that it cannot be
--
-- $1 $2 bigint  for :stretch: the least and the greatest id; by priority, the priority and the least id
-- $10 bigint    for :stretch, if it has that: the least priority
-- $3 bigint     rows to look at
-- $4 bigint     events to lock in this section
-- $5 bigint     events to lock, with those of the sections before
-- $6 text       queue
-- $7 bigint[]   events this relay is busy with or must not touch: left out
-- $8 bigint     1: there were sections before
-- $9 bigint     no event has a smaller id, but those that wait
--
-- One row with the columns of lock_ids.sql. In low events have an empty key, and waits is 1 or 0.
with waits as materialized (
    select exists (select from :state.parked p where p.queue = $6::text order by p.next_at offset 0) as any
), before as materialized (
    select case when $8::bigint = 1 then pg_catalog.current_setting('courier.keyless')::bigint[] else '{}' end as ids
), room as materialized (
    select r.places, case when r.places > 0 then $3::bigint else 0 end as rows
    from (select greatest(least($4::bigint, $5::bigint - pg_catalog.cardinality(b.ids)), 0) as places from before b) as r
), found as materialized (
    select :seen, f.free from :table e cross join lateral (
        select not :id = any (select pg_catalog.unnest($7::bigint[])) and not :id = any (select pg_catalog.unnest(b.ids) from before b)
               and case when not (select w.any from waits w) then true else not exists (
                   select from :state.parked p
                   where p.queue = $6::text and p.keyless and p.event_id between :id and :id
                   order by p.event_id offset 0) end as free offset 0) as f
    where :stretch and (:where) and (:all or f.free)
    order by :sort limit (select r.rows from room r)
), ordered as materialized (
    select f.*, pg_catalog.row_number() over (order by :first) as n from found f
), taken as materialized (
    select k.* from (select o.n, o.id as keyless from ordered o where o.free order by o.n offset 0) as k
    where :try_lock limit (select r.places from room r)
), total as materialized (
    -- stop: there was no place for those behind it.
    select case when pg_catalog.count(*) >= (select r.places from room r) then pg_catalog.max(k.n) end as stop from taken k
)
select pg_catalog.min(:by) as seen_min, pg_catalog.max(:by) as seen_max,
       pg_catalog.min(o.id) filter (where o.free and l.n is null and o.n <= coalesce(t.stop, o.n)) as missed_min,
       pg_catalog.max(o.id) filter (where o.free and l.n is null and o.n <= coalesce(t.stop, o.n)) as missed_max,
       pg_catalog.count(l.n) as locked, pg_catalog.count(o.n) filter (where o.free and o.n <= coalesce(t.stop, o.n)) as tried,
       pg_catalog.min(:by) filter (where o.free and o.n > t.stop) as cut_min,
       pg_catalog.max(:by) filter (where o.free and o.n > t.stop) as cut_max,
       (pg_catalog.count(o.n) >= (select r.rows from room r))::integer::bigint as full,
       pg_catalog.set_config('courier.claim', '{}', true) as claim,
       pg_catalog.set_config('courier.keyless', ((select b.ids from before b) || coalesce(
           pg_catalog.array_agg(l.keyless order by l.n) filter (where l.n is not null), '{}'))::text, true) as keyless,
       null::text as missed,
       pg_catalog.array_agg(array['', o.id::text, o.id::text]) filter (where o.id < $9::bigint and o.free)::text as low,
       (select w.any from waits w)::integer::bigint as waits
from total t left join ordered o on true left join taken l on l.n = o.n
