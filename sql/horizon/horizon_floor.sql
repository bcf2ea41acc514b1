-- Where one bounded stretch of ids begins: its least event that is not covered. One is covered whose key has an entry that
-- points at it or at an event before it, because then the key is read from there, wherever the floor is; and an event without a
-- key by an entry of its own. Whoever moves an entry sees what it covers, and leaves that covered, unless he has looked
-- before it was visible: so nothing is taken for covered while its key's lock is held, its entry is leased, or nobody knows
-- who was at work: see horizon_movers.sql, and docs/guarantees.md for the argument.
--
-- :table :state :id :key :lock_hash   as in per_key_lock.sql, and parked is asked as there
-- $1 $2 bigint  the stretch, all of it settled
-- $3 text       queue
-- $4 bigint     rows to look at
-- One row: floor bigint, null: there is none in the rows looked at
--          covered bigint, 1: that of an event that is covered, for all that can be seen without horizon_movers.sql
--          passed bigint, null, or: all rows looked at are covered, the last one was this, and there may be more
with movers as materialized (
    select nullif(pg_catalog.current_setting('courier.movers', true), '')::bigint[] as hashes
), seen as materialized (
    select :id as id, :key as key, case when (:key) is null then :id end as solo from :table e
    where :id between $1::bigint and $2::bigint
    order by :id limit $4::bigint
), first as (
    select k.id, k.covered
    from (select s.id, s.key, s.solo,
                 case when s.solo is null then exists (
                     select from :state.parked p
                     where p.queue = $3::text and not p.keyless and p.event_id <= s.id and p.token is null
                       and p.key between (s.key::text collate "default") and (s.key::text collate "default")
                     order by p.key offset 0)
                 else exists (
                     select from :state.parked p
                     where p.queue = $3::text and p.keyless and p.event_id between s.solo and s.solo
                     order by p.event_id offset 0) end as covered
          from seen s) as k
    where not k.covered
       or k.solo is null and ((select m.hashes is null from movers m)
                              or (:lock_hash)::bigint & 4294967295 = any (select pg_catalog.unnest(m.hashes) from movers m))
    order by k.id limit 1
)
select (select f.id::bigint from first f) as floor,
       (select f.covered::integer::bigint from first f) as covered,
       case when not exists (select from first) then (
           select pg_catalog.max(s.id)::bigint from seen s having pg_catalog.count(*) >= $4::bigint) end as passed
