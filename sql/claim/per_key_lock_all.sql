-- The first half of a claim like per_key_lock.sql, for no more rows than keys are wanted: what is found gets locked, and
-- nothing needs a place first. That takes less than half of the time. Of all ends together so many rows are read as there
-- are places, beside what is followed and what has waited. Which end is cut off then is a matter of fairness alone, and the
-- answer is that nothing was looked at behind what was seen of it. The names come in no order. A few keys too few are not
-- `thin`: looking at more rows costs more than they do.
--
-- While few entries are in parked they are all read once, and hashed: ten closed keys would cost a claim half of its time
-- again, as each of its keys would be looked up.
--
-- :table :where :state :id :key :key_type :parked_key :lock_hash   as in per_key_lock.sql, and parked is asked as there
--
-- $1 bigint     fresh: ids greater than this, newest first
-- $2 $3 bigint  newest: ids from $2 to $3, newest first
-- $4 $5 bigint  oldest: ids from $4 to $5, oldest first
-- $6 bigint     rows to look at in fresh and in newest
-- $7 bigint     keys to lock
-- $8 bigint     rows to look at in oldest
-- $9 text[]     keys to take first, wherever their events are; no more of them than $7
-- $10 text      queue
-- $11 integer   the first half of the advisory lock
-- $12 bigint    no event has a smaller id, but those that their key's entry covers (horizon_floor.sql), and
-- $13 text[]    of these keys (ordering/left_behind.h) those
-- $14 bigint[]  with this id or a greater one; of no key that one
-- $15 text[]    keys this relay is busy with or must not touch: left out; a few
-- $16 bigint[]  the same for events without a key
--
-- One row, or one for each missed key, with the columns of per_key_lock.sql.
with few as materialized (
    select p.key, p.keyless, p.event_id from :state.parked p where p.queue = $10::text order by p.next_at limit 65
), known as materialized (
    select pg_catalog.count(*) as entries from few
), due as materialized (
    select case when not p.keyless then :parked_key end as key, case when p.keyless then p.event_id end as keyless
    from :state.parked p
    where p.queue = $10::text and p.next_at <= pg_catalog.statement_timestamp() and (p.keyless or (:parked_key) is not null)
      and not (p.key = any ($15::text[]) and not p.keyless) and not (p.event_id = any ($16::bigint[]) and p.keyless)
    order by p.next_at
    limit least(greatest($7::bigint / 4, 1), $7::bigint - pg_catalog.cardinality($9::text[]))
), room as materialized (
    select $7::bigint - pg_catalog.cardinality($9::text[]) - (select pg_catalog.count(*) from due) as rows
), total as materialized (
    select pg_catalog.min(low) as seen_min, pg_catalog.max(high) as seen_max,
           pg_catalog.min(low) filter (where not ok) as missed_min,
           pg_catalog.max(high) filter (where not ok) as missed_max,
           pg_catalog.min(newest_id) as newest_min, pg_catalog.max(oldest_id) as oldest_max,
           pg_catalog.sum(newest_rows) as newest_rows, pg_catalog.sum(oldest_rows) as oldest_rows,
           coalesce(pg_catalog.sum(rows), 0) as rows,
           pg_catalog.count(*) filter (where ok) as locked, pg_catalog.count(ok) as tried,
           pg_catalog.array_agg(key) filter (where ok and keyless is null)::text as claim,
           pg_catalog.array_agg(keyless) filter (where ok and keyless is not null)::text as keyless,
           pg_catalog.array_agg(key::text) filter (where (not ok or busy) and keyless is null) as missed,
           pg_catalog.array_agg(low) filter (where (not ok or busy) and keyless is null) as missed_low,
           pg_catalog.array_agg(high) filter (where (not ok or busy) and keyless is null) as missed_high,
           pg_catalog.min(low) filter (where bare) as bare_min
    from (
        -- ok is null: it waits, is followed anyway, or is left out.
        select k.*, case when free then pg_catalog.pg_try_advisory_xact_lock($11::integer, :lock_hash) end as ok
        from (
            select key, keyless, null::bigint as low, null::bigint as high, null::bigint as newest_id,
                   null::bigint as oldest_id, 0 as newest_rows, 0 as oldest_rows, 0 as rows, false as busy, true as free, false as bare
            from due
            union all
            select f.key:::key_type, null, null, null, null, null, 0, 0, 0, false,
                   not exists (
                       select from :state.parked p
                       where p.queue = $10::text and not p.keyless and p.key between f.key and f.key
                       order by p.key offset 0),
                   false
            from pg_catalog.unnest($9::text[]) as f (key)
            union all
            select f.*,
                   case when f.busy or f.keyless is null and f.key::text = any (select pg_catalog.unnest($9::text[])) then false
                   when (select entries = 0 from known) then true
                   when (select entries < 65 from known) then
                       case when f.keyless is null then not f.key::text = any (select w.key from few w where not w.keyless)
                       else not f.keyless = any (select w.event_id from few w where w.keyless) end
                   when f.keyless is null then not exists (
                       select from :state.parked p
                       where p.queue = $10::text and not p.keyless
                         and p.key between (f.key::text collate "default") and (f.key::text collate "default")
                       order by p.key offset 0)
                   else not exists (
                       select from :state.parked p
                       where p.queue = $10::text and p.keyless and p.event_id between f.keyless and f.keyless
                       order by p.event_id offset 0) end,
                   case when f.low >= $12::bigint or exists (
                       select from rows from (pg_catalog.unnest($13::text[]), pg_catalog.unnest($14::bigint[])) as l (key, id)
                       where case when f.keyless is null then l.key = f.key::text and l.id <= f.low else l.key is null and l.id = f.keyless end)
                   then false
                   when f.keyless is null then not exists (
                       select from :state.parked p
                       where p.queue = $10::text and not p.keyless and p.event_id <= f.low
                         and p.key between (f.key::text collate "default") and (f.key::text collate "default")
                       order by p.key offset 0)
                   else not exists (
                       select from :state.parked p
                       where p.queue = $10::text and p.keyless and p.event_id between f.keyless and f.keyless
                       order by p.event_id offset 0) end
            from (
                select key, case when key is null then id end as keyless, pg_catalog.min(id) as low, pg_catalog.max(id) as high,
                       pg_catalog.min(newest_id) as newest_id, pg_catalog.max(oldest_id) as oldest_id,
                       pg_catalog.count(newest_id)::integer as newest_rows,
                       pg_catalog.count(oldest_id)::integer as oldest_rows, pg_catalog.count(*)::integer as rows,
                       case when key is not null then key::text = any (select pg_catalog.unnest($15::text[]))
                       else case when key is null then id end = any (select pg_catalog.unnest($16::bigint[])) end as busy
                from (
                    select id, key, newest_id, oldest_id
                    from ((select :id as id, :key as key, null::bigint as newest_id, :id as oldest_id from :table e
                           where :id between $4::bigint and $5::bigint and (:where)
                           order by :id limit $8::bigint)
                          union all
                          (select :id, :key, null, null from :table e
                           where :id > $1::bigint and (:where)
                           order by :id desc limit $6::bigint)
                          union all
                          (select :id, :key, :id, null from :table e
                           where :id between $2::bigint and $3::bigint and (:where)
                           order by :id desc limit $6::bigint)) as ends
                    limit (select r.rows from room r)) as seen
                group by 1, 2) as f
        ) as k
        offset 0) as locked
), summary as materialized (
    select case when t.newest_rows >= $6::bigint or t.rows >= r.rows then coalesce(t.newest_min - 1, $3::bigint) end
               as newest_left,
           case when t.oldest_rows >= $8::bigint or t.rows >= r.rows then coalesce(t.oldest_max + 1, $4::bigint) end
               as oldest_left,
           t.seen_max, t.missed_min, t.missed_max, t.locked, t.seen_min, t.missed, t.missed_low, t.missed_high, t.bare_min,
           (t.rows >= r.rows and t.tried < $7::bigint - $7::bigint / 8)::integer::bigint as thin,
           pg_catalog.set_config('courier.claim', coalesce(t.claim, '{}'), true) as claim,
           pg_catalog.set_config('courier.keyless', coalesce(t.keyless, '{}'), true) as keyless
    from total t cross join room r
)
select s.newest_left, s.oldest_left, s.seen_max, s.missed_min, s.missed_max, s.locked, s.claim, s.keyless,
       m.key as missed_key, s.seen_min, s.thin, m.low as missed_low, m.high as missed_high, s.bare_min
from summary s
left join lateral rows from (
    pg_catalog.unnest(s.missed), pg_catalog.unnest(s.missed_low), pg_catalog.unnest(s.missed_high)) as m (key, low, high) on true
