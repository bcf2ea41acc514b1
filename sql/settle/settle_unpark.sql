-- The head that a key waited for is delivered or dead. While the key has more events, its entry stays and points at
-- the next one: an event that was put back with an old id may lie below the position marks of every relay.
-- The entries are found as in lock_ids.sql, and nobody but the holder of a key's lock replaces its entry, but for
-- whoever pauses or resumes the key. A paused key keeps its entry: to drop it would be to resume it. What somebody else has
-- leased is left alone as in settle_park.sql.
--
-- The next event is looked for as in per_key_read.sql: of a table that the planner is blind to (see deleted_by_id.sql) the least
-- :id of a key would be found by going through all ids in their order.
--
-- :table :where :state :id   as in lock_ids.sql
-- :key_all           the condition that picks the events of key k.name
-- :key_all_order     the id order of those events, spelled so that an index on the key serves it if there is one
-- $1 text      queue
-- $2 text[]    keys
-- $3 bigint[]  heads of events without a key
-- $4 text[]    tokens of our leases
with next as materialized (
    select k.name, (select :id from :table e where :key_all and (:where) order by :key_all_order limit 1) as id
    from pg_catalog.unnest($2::text[]) as k (name)
), entry as materialized (
    select w.place, n.id
    from next n
    cross join lateral (
        select p.ctid as place from :state.parked p
        where p.queue = $1::text and not p.keyless and p.key between n.name and n.name
        order by p.key offset 0) as w
    union all
    select w.place, null
    from pg_catalog.unnest($3::bigint[]) as k (id)
    cross join lateral (
        select p.ctid as place from :state.parked p
        where p.queue = $1::text and p.keyless and p.event_id between k.id and k.id
        order by p.event_id offset 0) as w
), moved as (
    update :state.parked p
    set event_id = coalesce(n.id, p.event_id), attempts = 0, last_error = '', after_id = null, updated_at = pg_catalog.clock_timestamp(),
        next_at = case when p.resume_at is null then pg_catalog.clock_timestamp() else p.next_at end,
        resume_at = case when p.resume_at is not null then pg_catalog.clock_timestamp() end, token = null
    from entry n
    where p.ctid = n.place and (n.id is not null or p.resume_at is not null)
      and (p.token is null or p.token = any (select pg_catalog.unnest($4::text[]::uuid[])) or coalesce(p.resume_at, p.next_at) <= pg_catalog.clock_timestamp())
)
delete from :state.parked p using entry n where p.ctid = n.place and n.id is null and p.resume_at is null
  and (p.token is null or p.token = any (select pg_catalog.unnest($4::text[]::uuid[])) or coalesce(p.resume_at, p.next_at) <= pg_catalog.clock_timestamp())
