-- One section of the first half of a claim: look at a stretch of ids from one of its ends, choose keys, lock them, and leave their
-- names for the second half (per_key_read.sql), which must be a statement of its own, because its snapshot has to be younger than
-- the locks. A claim has a section for what is new, one for each end of what has not been looked at, one for keys by name
-- (lock_named.sql) and one for waits that are over (lock_due.sql): those that have something to look at, in one round trip.
--
-- The key of a row has its place by the first of its rows. The places count over all sections, so what one leaves the next ones
-- have. A key that a section before has locked, or that waits, takes none. The keys are chosen behind a fence ("offset 0"), so
-- that under every plan the lock function runs once for each key that has a place.
--
-- A plan is kept from when the queue was new, and one that suits no parked key reads all 100,000 of them, once a claim or once a
-- key. So each look-up in parked says how it is to be done: "offset 0" keeps it from becoming a join, and a range of one value in
-- its order, unlike an equality, is served best by the index on that value however empty it is. (A key column's own collation would
-- not fit that index.) While few entries are in parked they are all read once, and hashed: ten closed keys would cost a claim half
-- of its time again, as each of its keys would be looked up. A list of keys is a subquery for the same reason: it is hashed once,
-- where an array that is a parameter is searched for every row.
--
-- :table :where     the queue's table (as e) and its extra condition, or true
-- :state            the schema of parked and dead: outbox, except in `pgcourier bench`
-- :id :key          e's order column and key as expressions; :key is null::text when no key column is mapped
-- :lock_hash        integer: the second half of the advisory lock, from k.key and k.keyless
-- :lock_class       the first half of it
-- :late :more       false; or, where the sink is behind: does key f have an event before f.low, and were more of key l found than one? A key
--                   that is late has no place, because its first event is left to the oldest end
-- :order :near :behind   desc, high and <=; or asc, low and >=: from which end, which id of a key lies nearest to it, and what
--                   compares an id with one that lies nearer
--
-- $1 $2 bigint  ids from $1 to $2
-- $3 bigint     rows to look at
-- $4 bigint     keys to lock in this section
-- $5 bigint     keys to lock, with those of the sections before
-- $6 text       queue
-- $7 text[]     keys this relay is busy with or must not touch: left out
-- $8 bigint[]   the same for events without a key
-- $9 bigint     1: there were sections before
-- $10 bigint    no event has a smaller id, but those of keys that wait (horizon_floor.sql)
--
-- One row:
-- seen_min, seen_max bigint       smallest and greatest id seen; null: none
-- missed_min, missed_max bigint   ids whose key was locked elsewhere; null: none
-- locked, tried bigint            locks taken, and keys that had a place
-- cut_min, cut_max bigint         ids of keys for which there was no place; null: none
-- full bigint                     1: as many rows were seen as might be looked at
-- claim, keyless text             what was left for the second half
-- missed text                     keys locked elsewhere, found and in $7, or with more events (:more), each with its smallest and its greatest id
--                                 found: an array of three for each; null: none
-- low text                        keys that do not wait ('': none) and whose smallest id found is less than $10, as in missed; null: none
-- waits bigint                    entries in parked, up to 65
with few as materialized (
    select p.key, p.keyless, p.event_id from :state.parked p where p.queue = $6::text order by p.next_at limit 65
), waits as materialized (select pg_catalog.count(*) as entries from few), before as materialized (
    select case when $9::bigint = 1 then pg_catalog.current_setting('courier.claim')::text[] else '{}' end as keys,
           case when $9::bigint = 1 then pg_catalog.current_setting('courier.keyless')::bigint[] else '{}' end as ids
), room as materialized (
    select greatest(least($4::bigint, $5::bigint - pg_catalog.cardinality(b.keys) - pg_catalog.cardinality(b.ids)), 0) as keys from before b
), found as materialized (
    select s.key, case when s.key is null then s.id end as keyless,
           pg_catalog.min(s.id) as low, pg_catalog.max(s.id) as high, pg_catalog.count(*) as n
    from (select :id as id, :key as key from :table e
          where :id between $1::bigint and $2::bigint and (:where)
          order by :id :order limit (select case when r.keys > 0 then $3::bigint else 0 end from room r)) as s
    group by 1, 2
), candidate as materialized (
    select f.*, (:late) as late,
           case when f.keyless is null then f.key::text = any (select pg_catalog.unnest($7::text[]))
           else f.keyless = any (select pg_catalog.unnest($8::bigint[])) end as busy,
           case when f.keyless is null then f.key::text = any (select pg_catalog.unnest(b.keys) from before b)
           else f.keyless = any (select pg_catalog.unnest(b.ids) from before b) end
           or case when f.keyless is null then f.key::text = any (select w.key from few w where not w.keyless)
              else f.keyless = any (select w.event_id from few w where w.keyless) end
           or (select w.entries from waits w) >= 65 and case when f.keyless is null
              then exists (
                  select from :state.parked p
                  where p.queue = $6::text and not p.keyless
                    and p.key between (f.key::text collate "default") and (f.key::text collate "default")
                  order by p.key offset 0)
              else exists (
                  select from :state.parked p
                  where p.queue = $6::text and p.keyless and p.event_id between f.keyless and f.keyless
                  order by p.event_id offset 0) end as needs_none
    from found f
), edge as materialized (
    -- The first key for which there is no place, if there may be more keys than places.
    select c.:near as id from candidate c
    where (select r.keys from room r) < $3::bigint and not c.busy and not c.needs_none and not c.late
    order by c.:near :order offset (select r.keys from room r) limit 1
), locked as (
    -- ok is null: it needs no place, is left out, or there was no place.
    select k.*, case when not (k.busy or k.needs_none or k.cut) then pg_catalog.pg_try_advisory_xact_lock(:lock_class, :lock_hash) end as ok
    from (select c.*, not c.busy and not c.needs_none
                      and (c.late or coalesce(c.:near :behind (select e.id from edge e), false)) as cut
          from candidate c offset 0) as k offset 0
)
select pg_catalog.min(l.low) as seen_min, pg_catalog.max(l.high) as seen_max,
       pg_catalog.min(l.low) filter (where not l.ok) as missed_min, pg_catalog.max(l.high) filter (where not l.ok) as missed_max,
       pg_catalog.count(*) filter (where l.ok) as locked, pg_catalog.count(l.ok) as tried,
       pg_catalog.min(l.low) filter (where l.cut) as cut_min, pg_catalog.max(l.high) filter (where l.cut) as cut_max,
       (coalesce(pg_catalog.sum(l.n), 0) >= (select case when r.keys > 0 then $3::bigint else 0 end from room r))::integer::bigint as full,
       pg_catalog.set_config('courier.claim', ((select b.keys from before b) || coalesce(
           pg_catalog.array_agg(l.key::text) filter (where l.ok and l.keyless is null), '{}'))::text, true) as claim,
       pg_catalog.set_config('courier.keyless', ((select b.ids from before b) || coalesce(
           pg_catalog.array_agg(l.keyless) filter (where l.ok and l.keyless is not null), '{}'))::text, true) as keyless,
       pg_catalog.array_agg(array[l.key::text, l.low::text, l.high::text])
           filter (where (not l.ok or l.busy or (:more)) and l.keyless is null)::text as missed,
       pg_catalog.array_agg(array[coalesce(l.key::text, ''), l.low::text, l.high::text])
           filter (where l.low < $10::bigint and not l.needs_none)::text as low,
       (select w.entries from waits w) as waits
from locked l
