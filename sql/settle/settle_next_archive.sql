-- Moves delivered events from the table to the archive, and puts them into the next queue's table: settle_archive.sql and
-- settle_next.sql in one.
--
-- :table :id :key :created_at :state :table_name    as in settle_archive.sql
-- :handed :next_table :next_table_name :next_columns :next_values :responses    as in settle_next.sql
-- :queue_name  the queue's name as a literal
-- $1 bigint[]  ids
-- $2 tid[]     places
-- $3 bytea[]   with :responses: what was answered to each
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
    returning :id as id, (:key)::text as archive_key, (:created_at)::timestamptz as created_at, pg_catalog.row_to_json(e.*) as original:handed
), moved as materialized (
    select pg_catalog.array_agg(m.id) as ids from pg_catalog.unnest($1::bigint[]) as m (id)
    where (select w.blind from way w) is not true
      and (select pg_catalog.count(*) from placed) < pg_catalog.cardinality($1::bigint[])
      and (m.id = any (select p.id from placed p)) is not true
), listed as (
    delete from :table e
    where :id = any ((select m.ids from moved m)::bigint[])
    returning :id as id, (:key)::text as archive_key, (:created_at)::timestamptz as created_at, pg_catalog.row_to_json(e.*) as original:handed
), gone as materialized (
    select * from placed union all select * from listed
), handed_on as (
    insert into :next_table (:next_columns)
    select :next_values from gone g:responses order by g.id
    returning 1
), archived as (
    insert into :state.archive (queue, event_id, key, created_at, original)
    select (:queue_name)::text, g.id, g.archive_key, g.created_at, g.original from gone g
)
select case when g.n = h.n then g.n
            else pg_catalog.concat(g.n - h.n, ' of ', g.n, ' rows did not go into ', :next_table_name, ': a trigger keeps them out')::bigint
       end as gone,
       case when g.n < pg_catalog.cardinality($1::bigint[]) then pg_catalog.set_config('courier.missing', 'yes', true) end as missing
from (select pg_catalog.count(*) as n from gone) g, (select pg_catalog.count(*) as n from handed_on) h
