-- One section of the first half of a claim, see lock_ids.sql: keys by their names, wherever their events are. One that waits is
-- left alone.
--
-- :state :key_type :lock_hash :lock_class   as in lock_ids.sql and per_key_read_few.sql, and parked is asked as there
--
-- $1 text[]    keys
-- $2 text      queue
--
-- One row with the columns of lock_ids.sql, of which those that tell of ids are null; of a missed key the ids are 1 and 0, which is
-- no range. This section is the first one.
with locked as materialized (
    -- ok is null: it waits.
    select k.key, case when not exists (
        select from :state.parked p
        where p.queue = $2::text and not p.keyless and p.key between (k.key::text collate "default") and (k.key::text collate "default")
        order by p.key offset 0) then pg_catalog.pg_try_advisory_xact_lock(:lock_class, :lock_hash) end as ok
    from (select f.key:::key_type as key, null::bigint as keyless from pg_catalog.unnest($1::text[]) as f (key) offset 0) as k
)
select null::bigint as seen_min, null::bigint as seen_max, null::bigint as missed_min, null::bigint as missed_max,
       pg_catalog.count(*) filter (where l.ok) as locked, pg_catalog.count(l.ok) as tried,
       null::bigint as cut_min, null::bigint as cut_max, 0::bigint as full,
       pg_catalog.set_config('courier.claim', coalesce(pg_catalog.array_agg(l.key::text) filter (where l.ok), '{}')::text, true) as claim,
       pg_catalog.set_config('courier.keyless', '{}', true) as keyless,
       pg_catalog.array_agg(array[l.key::text, '1', '0']) filter (where not l.ok)::text as missed,
       null::text as low, null::bigint as waits
from locked l
