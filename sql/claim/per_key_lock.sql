-- The first half of a claim: choose keys, lock them, and leave their names for the second half (per_key_read.sql),
-- which must be a statement of its own, because its snapshot has to be younger than the locks. The keys are chosen
-- behind materialized fences, so that under every plan the lock function runs once for each key that is returned.
--
-- A plan is kept from when the queue was new, and one that suits no parked key reads all 100,000 of them, once a claim or
-- once a key. So each look-up in parked says how it is to be done: "offset 0" keeps it from becoming a join, and a
-- range of one value in its order, unlike an equality, is served best by the index on that value however empty it is. (A key column's own collation would not fit that index.)
--
-- Whether an event is the first of its key is looked for from it backwards: in a flood of one key the answer is the entry
-- beside it, and not behind those of all that has been delivered of the key.
--
-- A list of keys is a subquery here: it is hashed once, where an array that is a parameter is searched for every row.
--
-- :table :where     the queue's table (as e) and its extra condition, or true
-- :state            the schema of parked and dead: outbox, except in `pgcourier bench`
-- :id :key          e's order column and key as expressions; :key is null::text when no key column is mapped
-- :key_type         bigint, text or uuid
-- :parked_key       p.key as a :key_type; null when it is none: an entry left from a key column of another type
-- :lock_hash        integer: the second half of the advisory lock, from k.key and k.keyless
--
-- $1 bigint     fresh: ids greater than this, newest first
-- $2 $3 bigint  newest: ids from $2 to $3, newest first
-- $4 $5 bigint  oldest: ids from $4 to $5, oldest first
-- $6 bigint     rows to look at in fresh and in newest
-- $7 bigint     keys to lock
-- $8 bigint     how many of 100 keys come from the oldest end
-- $9 text[]     keys this relay is busy with or must not touch: left out
-- $10 bigint[]  the same for events without a key
-- $11 text[]    keys to take first, wherever their events are
-- $12 text      queue
-- $13 integer   the first half of the advisory lock
-- $14 bigint    1: waits that are over come last, after the two ends
-- $15 bigint    rows to look at in oldest
-- $16 bigint    null, or: of fresh and newest, events that are not the first of their key come last; none has a smaller id
--               than this, but of keys that wait, or are in $18
-- $17 bigint    no event has a smaller id, but those that their key's entry covers (horizon_floor.sql), and
-- $18 text[]    of these keys (ordering/left_behind.h) those
-- $19 bigint[]  with this id or a greater one; of no key that one
--
-- One row, or one for each missed key:
-- newest_left bigint   ids from here down were not looked at (of newest); null: all were
-- oldest_left bigint   ids from here up were not looked at (of oldest); null: all were
-- seen_max bigint      greatest id seen; null: none
-- missed_min, missed_max bigint   ids whose key was locked elsewhere; null: none
-- locked bigint        locks taken
-- claim, keyless text     what was left for the second half
-- missed_key text      locked elsewhere, or found and in $9, or with $16, locked here and more than one event found; null:
--                      none, or an event without a key
-- seen_min bigint      smallest id seen; null: none
-- thin bigint          1: fewer keys than $7 were tried, and there are more rows: of those looked at more than one in eight gave no
--                      key, or they were fewer than half of $7
-- missed_low, missed_high bigint   smallest and greatest id found of the missed key; null: it was not found by an id
-- bare_min bigint      smallest id seen below $17 that no entry covers, nor $18; null: none
with fresh as materialized (
    select id, key, first, pg_catalog.count(*) filter (where first) over (order by id desc rows unbounded preceding) as n
    from (select seen.id, seen.key,
                 $16::bigint is null or seen.key is null or not exists (
                     select from :table e
                     where (:key, :id) >= (seen.key, $16::bigint) and (:key, :id) < (seen.key, seen.id) and (:where)
                     order by :key desc, :id desc offset 0) as first
          from (select :id as id, :key as key from :table e
                where :id > $1::bigint and (:where)
                order by :id desc limit $6::bigint) as seen
          order by seen.id desc offset 0) as rows
), newest as materialized (
    select id, key, first, pg_catalog.count(*) filter (where first) over (order by id desc rows unbounded preceding) as n
    from (select seen.id, seen.key,
                 $16::bigint is null or seen.key is null or not exists (
                     select from :table e
                     where (:key, :id) >= (seen.key, $16::bigint) and (:key, :id) < (seen.key, seen.id) and (:where)
                     order by :key desc, :id desc offset 0) as first
          from (select :id as id, :key as key from :table e
                where :id between $2::bigint and $3::bigint and (:where)
                order by :id desc limit $6::bigint) as seen
          order by seen.id desc offset 0) as rows
), oldest as materialized (
    select id, key, pg_catalog.row_number() over (order by id) as n
    from (select :id as id, :key as key from :table e
          where :id between $4::bigint and $5::bigint and (:where)
          order by :id limit $15::bigint) as rows
), found as materialized (
    -- An event without a key has no order: it stands for itself, as `keyless`. The two ends take turns, $8 of 100 from the
    -- oldest: a key's place is that of the first of its rows.
    select key, case when key is null then id end as keyless, pg_catalog.min(id) as low, pg_catalog.max(id) as high,
           pg_catalog.max(newest_id) as newest_id, pg_catalog.min(oldest_id) as oldest_id, pg_catalog.min(place) as place
    from (
        select id, key, null::bigint as newest_id, null::bigint as oldest_id,
               case when not first then 1000000 else 0 end + n * 100 / nullif(100 - $8::bigint, 0) as place
        from fresh
        union all
        select id, key, id, null,
               case when not first then 1000000 else 0 end
               + (coalesce((select pg_catalog.max(n) from fresh), 0) + n) * 100 / nullif(100 - $8::bigint, 0)
        from newest
        union all
        select id, key, null, id, n * 100 / nullif($8::bigint, 0)
        from oldest
    ) as rows
    group by 1, 2
), waits as materialized (
    select exists (select from :state.parked p where p.queue = $12::text order by p.next_at offset 0) as any
), candidate as (
    -- Keys with more to deliver, of which there are never more than places; waits that are over, or with $14 at the end;
    -- then what was found.
    (select case when not p.keyless then :parked_key end as key, case when p.keyless then p.event_id end as keyless,
            null::bigint as low, null::bigint as high, null::bigint as newest_id, null::bigint as oldest_id,
            case when $14::bigint = 1 then 1000000001 else -1 end::bigint as place
     from :state.parked p
     where p.queue = $12::text and p.next_at <= pg_catalog.statement_timestamp() and (p.keyless or (:parked_key) is not null)
       and not (p.key = any ($9::text[]) and not p.keyless) and not (p.event_id = any ($10::bigint[]) and p.keyless)
     order by p.next_at
     limit greatest($7::bigint / 4, 1))
    union all
    (select f.key:::key_type, null, null, null, null, null, -2
     from pg_catalog.unnest($11::text[]) as f (key)
     where not exists (
         select from :state.parked p
         where p.queue = $12::text and not p.keyless and p.key between f.key and f.key
         order by p.key offset 0))
    union all
    (select f.key, f.keyless, f.low, f.high, f.newest_id, f.oldest_id, coalesce(f.place, 1000000000)
     from found f
     where (f.keyless is not null or not (f.key::text = any (select pg_catalog.unnest($9::text[]))
                                       or f.key::text = any (select pg_catalog.unnest($11::text[]))))
       and (f.keyless is null or not f.keyless = any (select pg_catalog.unnest($10::bigint[])))
       and case when not (select w.any from waits w) then true
           when f.keyless is null then not exists (
               select from :state.parked p
               where p.queue = $12::text and not p.keyless
                 and p.key between (f.key::text collate "default") and (f.key::text collate "default")
               order by p.key offset 0)
           else not exists (
               select from :state.parked p
               where p.queue = $12::text and p.keyless and p.event_id between f.keyless and f.keyless
               order by p.event_id offset 0) end)
), ordered as materialized (
    select *, pg_catalog.row_number() over (order by place) as n from candidate
), locked as materialized (
    -- ok is null: there was no place.
    select k.*, case when n <= $7::bigint then pg_catalog.pg_try_advisory_xact_lock($13::integer, :lock_hash) end as ok
    from ordered k
), total as materialized (
    -- The names come in the order of the places. No promise depends on it: it is only fair when not all can be read.
    select pg_catalog.max(newest_id) filter (where ok is null) as newest_left,
           pg_catalog.min(oldest_id) filter (where ok is null) as oldest_left,
           pg_catalog.min(low) filter (where not ok) as missed_min,
           pg_catalog.max(high) filter (where not ok) as missed_max,
           pg_catalog.count(*) filter (where ok) as locked,
           pg_catalog.count(ok) as tried, pg_catalog.count(ok) filter (where low is not null) as seen,
           pg_catalog.array_agg(key) filter (where ok and keyless is null)::text as claim,
           pg_catalog.array_agg(keyless) filter (where ok and keyless is not null)::text as keyless
    from locked
), summary as materialized (
    select coalesce(t.newest_left,
                    (select pg_catalog.min(id) - 1 from newest having pg_catalog.count(*) >= $6::bigint)) as newest_left,
           coalesce(t.oldest_left,
                    (select pg_catalog.max(id) + 1 from oldest having pg_catalog.count(*) >= $15::bigint)) as oldest_left,
           (select pg_catalog.max(high) from found) as seen_max,
           (select pg_catalog.min(low) from found) as seen_min,
           (select pg_catalog.min(f.low) from found f
            where f.low < $17::bigint and not exists (
                select from rows from (pg_catalog.unnest($18::text[]), pg_catalog.unnest($19::bigint[])) as l (key, id)
                where case when f.keyless is null then l.key = f.key::text and l.id <= f.low else l.key is null and l.id = f.keyless end)
            and case when f.keyless is null then not exists (
                select from :state.parked p
                where p.queue = $12::text and not p.keyless and p.event_id <= f.low
                  and p.key between (f.key::text collate "default") and (f.key::text collate "default")
                order by p.key offset 0)
            else not exists (
                select from :state.parked p
                where p.queue = $12::text and p.keyless and p.event_id between f.keyless and f.keyless
                order by p.event_id offset 0) end) as bare_min,
           t.missed_min, t.missed_max, t.locked,
           (select t.tried < $7::bigint
                   and (t.seen < f.n + m.n + o.n - (f.n + m.n + o.n) / 8 or f.n + m.n + o.n < $7::bigint / 2)
                   and (f.n >= $6::bigint or m.n >= $6::bigint or o.n >= $15::bigint)
            from (select pg_catalog.count(*) as n from fresh) as f,
                 (select pg_catalog.count(*) as n from newest) as m,
                 (select pg_catalog.count(*) as n from oldest) as o)::integer::bigint as thin,
           pg_catalog.set_config('courier.claim', coalesce(t.claim, '{}'), true) as claim,
           pg_catalog.set_config('courier.keyless', coalesce(t.keyless, '{}'), true) as keyless
    from total t
)
select s.newest_left, s.oldest_left, s.seen_max, s.missed_min, s.missed_max, s.locked, s.claim, s.keyless,
       m.key as missed_key, s.seen_min, s.thin, m.low as missed_low, m.high as missed_high, s.bare_min
from summary s
left join (
    select l.key::text, l.low, l.high from locked l where not l.ok or (l.ok and l.high > l.low and $16::bigint is not null)
    union all
    select f.key::text, f.low, f.high from found f where f.key::text = any (select pg_catalog.unnest($9::text[]))
) as m on true
