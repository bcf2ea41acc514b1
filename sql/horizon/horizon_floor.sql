-- Where one bounded stretch of ids begins: the least id in it, but for events that their key's entry covers, or their own. Such an
-- entry points at an event that is not greater, so that the key is read from there, wherever that is; and whoever moves or
-- removes it sees what it covers, and covers it again: its snapshot is younger than the lock of the key, which nobody had when
-- horizon_movers.sql looked, or the entry is leased and covers nothing here. That holds for ids which were settled before.
--
-- :table :state :id :key :lock_hash   as in per_key_lock.sql, and parked is asked as there
-- $1 $2 bigint  the stretch, all of it settled
-- $3 text       queue
-- $4 bigint     rows to look at
-- One row: floor bigint; null: there is none in the rows looked at
--          covered bigint, 1: that of an event that is covered, by an entry that horizon_movers.sql has to be asked about
--          passed bigint, null, or: rows were covered up to here, and nothing was looked at behind them
with movers as materialized (
    select nullif(pg_catalog.current_setting('courier.movers', true), '')::bigint[] as hashes
), first as (
    select k.id, k.covered
    from (select seen.id, seen.key, seen.solo,
                 case when seen.solo is null then exists (
                     select from :state.parked p
                     where p.queue = $3::text and not p.keyless and p.event_id <= seen.id and p.token is null
                       and p.key between (seen.key::text collate "default") and (seen.key::text collate "default")
                     order by p.key offset 0)
                 else exists (
                     select from :state.parked p
                     where p.queue = $3::text and p.keyless and p.event_id between seen.solo and seen.solo
                     order by p.event_id offset 0) end as covered
          from (select :id as id, :key as key, case when (:key) is null then :id end as solo from :table e
                where :id between $1::bigint and $2::bigint
                order by :id limit $4::bigint) as seen) as k
    where not (k.covered and (k.solo is not null
                              or (:lock_hash)::bigint & 4294967295 <> all (select pg_catalog.unnest(m.hashes) from movers m)
                                 and (select m.hashes is not null from movers m)))
    order by k.id limit 1
)
select (select f.id from first f) as floor,
       (select f.covered::integer::bigint from first f) as covered,
       case when not exists (select from first) then (
           select pg_catalog.max(seen.id)
           from (select :id as id from :table e
                 where :id between $1::bigint and $2::bigint
                 order by :id limit $4::bigint) as seen
           having pg_catalog.count(*) >= $4::bigint) end as passed
