-- One section of the first half of a claim, see lock_ids.sql: keys, and events without one, whose wait is over.
--
-- :state        as in lock_ids.sql
-- :parked_key   p.key as a key, null when it is none: an entry left from a key column of another type
-- :try_lock     locks key k.key, or event k.keyless, or says that it cannot be
--
-- $1 bigint    keys to lock in this section
-- $2 bigint    keys to lock, with those of the sections before
-- $3 text      queue
-- $4 text[]    keys this relay is busy with or must not touch: left out
-- $5 bigint[]  the same for events without a key
-- $6 bigint    1: there were sections before
--
-- One row with the columns of lock_ids.sql, of which those that tell of ids are null; of a missed key the ids are 1 and 0.
with before as materialized (
    select case when $6::bigint = 1 then pg_catalog.current_setting('courier.claim')::text[] else '{}' end as keys,
           case when $6::bigint = 1 then pg_catalog.current_setting('courier.keyless')::bigint[] else '{}' end as ids
), due as materialized (
    select case when not p.keyless then :parked_key end as key, case when p.keyless then p.event_id end as keyless
    from :state.parked p
    where p.queue = $3::text and p.next_at <= pg_catalog.statement_timestamp() and (p.keyless or (:parked_key) is not null)
      and case when p.keyless then not p.event_id = any ($5::bigint[]) and not p.event_id = any (select pg_catalog.unnest(b.ids) from before b)
          else not p.key = any ($4::text[]) and not p.key = any (select pg_catalog.unnest(b.keys) from before b) end
    order by p.next_at
    limit (select greatest(least($1::bigint, $2::bigint - pg_catalog.cardinality(b.keys) - pg_catalog.cardinality(b.ids)), 0) from before b)
), locked as materialized (
    select k.*, :try_lock as ok from (select d.* from due d offset 0) as k
)
select null::bigint as seen_min, null::bigint as seen_max, null::bigint as missed_min, null::bigint as missed_max,
       pg_catalog.count(*) filter (where l.ok) as locked, pg_catalog.count(l.ok) as tried,
       null::bigint as cut_min, null::bigint as cut_max, 0::bigint as full,
       pg_catalog.set_config('courier.claim', ((select b.keys from before b) || coalesce(
           pg_catalog.array_agg(l.key::text) filter (where l.ok and l.keyless is null), '{}'))::text, true) as claim,
       pg_catalog.set_config('courier.keyless', ((select b.ids from before b) || coalesce(
           pg_catalog.array_agg(l.keyless) filter (where l.ok and l.keyless is not null), '{}'))::text, true) as keyless,
       pg_catalog.array_agg(array[l.key::text, '1', '0']) filter (where not l.ok and l.keyless is null)::text as missed,
       null::text as low, null::bigint as waits
from locked l
