-- May the queue rest, and which transactions have to end before? A transaction that wrote before the relay had its locks has
-- not notified anybody. An INSERT takes RowExclusiveLock before its trigger runs, and the lock goes when the rows can be
-- seen by others. Whoever brings a partition with rows takes a stronger lock on the table; ShareUpdateExclusiveLock on a table
-- with rows is a vacuum's. pg_locks shows locks to everybody.
--
-- A queue may rest when whatever becomes its event wakes the relay: not when some rows get there past the trigger, and not when
-- the condition depends on time or on other tables. A transaction that has notified cannot be prepared. The subscription's
-- apply process fires triggers of rows alone.
--
-- $1 oid    the queue's table
-- $2 text   the queue's condition, or null
-- $3 int    backend that has the locks of rest_lock.sql; in another server, or another database, producers would not see them
-- $4 text   an array of transactions, as this statement has named them: whoever is none of them does not matter; null: all do
-- $5 text   the table as the relay's statements name it
-- One row: obstacle text, why the queue may not rest, or null; held boolean; writers text, an array, or null: none;
-- family bigint, another one when the table has got or lost a partition
with family as materialized (
    select $1::oid as relation union select x.relid::oid from pg_catalog.pg_partition_tree($1::oid) x
), watched (relation) as (
    select f.relation from family f
    union all select pg_catalog.unnest(array['outbox.parked', 'outbox.paused', 'outbox.schedule']::pg_catalog.regclass[])::oid
), database as materialized (
    select d.oid from pg_database d where d.datname = pg_catalog.current_database()
), subscribed as materialized (
    select exists (select from pg_subscription_rel s where s.srrelid in (select f.relation from family f)) as by_row
), unguarded as (
    select c.oid from pg_class c cross join subscribed s
    where c.oid in (select f.relation from family f) and not exists (
        select from pg_trigger t join pg_proc p on p.oid = t.tgfoid join pg_namespace n on n.oid = p.pronamespace and n.nspname = 'outbox'
        where t.tgrelid = c.oid and t.tgname = 'outbox_wake' and t.tgenabled = 'A' and t.tgtype & 20 = 20 and t.tgattr::text = ''
          and (p.proname = 'wake_by_row' or (p.proname = 'wake_by_statement' and c.relkind = 'r' and not c.relispartition and not s.by_row)))
), named as (
    select m[1] as name from pg_catalog.regexp_matches($2::text, '([[:alpha:]_][\w$]*)"?\s*\(', 'g') m
)
select case when pg_catalog.current_setting('max_prepared_transactions')::int > 0 then 'max_prepared_transactions is not 0'
            when pg_catalog.to_regclass($5::text) is distinct from $1::oid::pg_catalog.regclass then 'another table has this name by now'
            when (select c.relispartition from pg_class c where c.oid = $1::oid)
              or exists (select from pg_class c where c.oid in (select f.relation from family f) and c.relkind not in ('r', 'p'))
              or exists (select from pg_inherits i join pg_class c on c.oid = i.inhparent
                          where i.inhparent in (select f.relation from family f) and c.relkind <> 'p')
            then 'rows come into the table through another one'
            when exists (select from unguarded) then 'no trigger outbox_wake that is enabled always: call outbox.install_wake()'
            when $2::text ~* '\m(select|current_\w+|localtime(stamp)?)\M'
              or exists (select from named n join pg_proc p on p.proname in (n.name, pg_catalog.lower(n.name)) where p.provolatile <> 'i')
              or exists (select from pg_operator o join pg_proc p on p.oid = o.oprcode
                          where o.oprnamespace <> 'pg_catalog'::pg_catalog.regnamespace and p.provolatile <> 'i'
                            and pg_catalog.strpos($2::text, o.oprname) > 0)
            then 'the condition may depend on more than the row' end as obstacle,
       exists (select from pg_catalog.pg_locks l
                where l.locktype = 'advisory' and l.objsubid = 2 and l.database = (select d.oid from database d) and l.pid = $3::int
                  and l.classid::bigint = (-1818282541::bigint & 4294967295) and l.objid = $1::oid and l.granted) as held,
       (select pg_catalog.array_agg(distinct l.virtualtransaction)::text from pg_catalog.pg_locks l
         where l.locktype = 'relation' and l.mode not in ('AccessShareLock', 'RowShareLock') and l.granted
           and l.database = (select d.oid from database d) and l.relation in (select w.relation from watched w)
           and (l.mode <> 'ShareUpdateExclusiveLock' or exists (select from pg_class c where c.oid = l.relation and c.relkind = 'p'))
           and ($4::text is null or l.virtualtransaction = any ($4::text[]))) as writers,
       (select pg_catalog.hashtext(pg_catalog.array_agg(f.relation order by f.relation)::text)::bigint from family f) as family
