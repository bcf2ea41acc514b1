-- Moves delivered events from the table to the archive: what was still there, exactly once. How the rows are
-- found: settle_delete.sql.
--
-- :table :id :key   the queue's table (as e), its order column and its key
-- :created_at       its time of creation, or null
-- :state            as in per_key_lock.sql
-- :table_name       the table's name as a literal
-- $1 bigint[]  ids
-- $2 tid[]     places
-- $3 text      queue
-- One row, as in settle_delete.sql.
with way as materialized (
    select c.reltuples = 0 and c.relpages > 0 as blind,
           not exists (select from pg_catalog.pg_trigger t where t.tgrelid = c.oid and t.tgtype & 11 = 11) as by_place
    from pg_catalog.pg_class c
    where c.oid = :table_name::regclass and c.relkind = 'r' and not c.relhassubclass
), placed as (
    delete from only :table e
    where e.ctid = any (case when (select w.blind from way w) then array(
                                 select e.ctid from only :table e
                                 where :id = any (case when (select w.blind from way w) then $1::bigint[] end) order by :id)
                             when (select w.by_place from way w) then $2::tid[] end)
      and (:id = any (select pg_catalog.unnest($1::bigint[]))) is true
    returning :id as id, (:key)::text as key, (:created_at)::timestamptz as created_at, pg_catalog.row_to_json(e.*) as original
), moved as materialized (
    select pg_catalog.array_agg(m.id) as ids from pg_catalog.unnest($1::bigint[]) as m (id)
    where (select w.blind from way w) is not true
      and (select pg_catalog.count(*) from placed) < pg_catalog.cardinality($1::bigint[])
      and (m.id = any (select p.id from placed p)) is not true
), listed as (
    delete from :table e
    where :id = any ((select m.ids from moved m)::bigint[])
    returning :id as id, (:key)::text as key, (:created_at)::timestamptz as created_at, pg_catalog.row_to_json(e.*) as original
), archived as (
    insert into :state.archive (queue, event_id, key, created_at, original)
    select $3::text, id, key, created_at, original from placed
    union all
    select $3::text, id, key, created_at, original from listed
)
select n as gone, case when n < pg_catalog.cardinality($1::bigint[]) then pg_catalog.set_config('courier.missing', 'yes', true) end as missing
from (select (select pg_catalog.count(*) from placed) + (select pg_catalog.count(*) from listed) as n) as gone
