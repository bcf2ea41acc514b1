-- Who may be about to move or remove the entries of keys: horizon_floor.sql, which comes next in the same transaction and sees
-- what they have committed, takes nothing of theirs for covered. An entry is moved or removed by whoever has the lock of its
-- key, or has leased it, which the entry says itself; or by a relay that has lost a key's lock and settles what it had sent. He
-- has a lock on parked before the statement that does it looks at anything, and is found by two looks: whoever wrote to
-- parked at the first one has ended by the second, and has seen what had settled before the first if he has begun since.
--
-- :lock_class     the first half of the advisory lock
-- :parked_class   parked as a regclass
-- $1 text[]       the answer to the look before this; null: there was none
-- One row: writers text, a text[]: transactions that write to parked
--          movers text, without meaning: courier.movers is a bigint[] of the second halves of the locks that are held; or empty:
--          a writer of the last look goes on, there was none, or this transaction would not see what he does
with held as materialized (
    select l.locktype, l.virtualtransaction, l.objid::bigint as hash from pg_catalog.pg_locks l
    where l.granted and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
      and (l.locktype = 'advisory' and l.classid::bigint = (:lock_class)::bigint & 4294967295 and l.objsubid = 2
           or l.locktype = 'relation' and l.relation = :parked_class and l.mode = 'RowExclusiveLock')
)
select coalesce((select pg_catalog.array_agg(w.virtualtransaction) from held w where w.locktype = 'relation')::text, '{}') as writers,
       pg_catalog.set_config('courier.movers',
           case when $1::text[] is null or pg_catalog.current_setting('transaction_isolation') <> 'read committed'
                     or exists (select from held w where w.locktype = 'relation' and w.virtualtransaction = any ($1::text[]))
           then '' else coalesce((select pg_catalog.array_agg(o.hash) from held o where o.locktype = 'advisory')::text, '{}') end,
           true) as movers
