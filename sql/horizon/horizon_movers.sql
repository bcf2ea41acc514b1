-- Who may be about to move or remove the entries of keys: horizon_floor.sql, which comes next in the same transaction, leaves
-- these keys alone. An entry is moved or removed by whoever has its key's lock, or has leased it, which the entry says itself;
-- what else writes to parked holds no lock of any key, and while there is such a transaction nobody knows which keys it has read.
-- Both show in pg_locks before those read anything: the snapshot of horizon_floor.sql is younger than this look.
--
-- :lock_class     the first half of the advisory lock
-- :parked_name    parked as a literal
-- One row without meaning: courier.movers is an array of the second halves, as a bigint[]; or empty: nothing is known.
with held as materialized (
    select l.locktype, l.virtualtransaction, l.objid::bigint as hash from pg_catalog.pg_locks l
    where l.granted and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
      and (l.locktype = 'advisory' and l.classid::bigint = (:lock_class)::bigint & 4294967295 and l.objsubid = 2
           or l.locktype = 'relation' and l.relation = :parked_name::regclass and l.mode = 'RowExclusiveLock')
)
select pg_catalog.set_config('courier.movers',
           case when exists (select from held w
                             where w.locktype = 'relation' and not exists (
                                 select from held o where o.locktype = 'advisory' and o.virtualtransaction = w.virtualtransaction))
           then '' else coalesce((select pg_catalog.array_agg(o.hash) from held o where o.locktype = 'advisory')::text, '{}') end,
           true) as movers
