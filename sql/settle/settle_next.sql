-- Takes delivered events out of the table and puts them into the next queue's: the rows that this very statement takes out,
-- so each goes on exactly once, whoever else settles it at the same moment and whatever a trigger keeps. In the order of
-- :id, which is the order in which they get their new ids. How the rows are found: settle_delete.sql.
--
-- Fails when a row is not put in, as when a trigger there returns NULL: the event would be lost. SQL has no RAISE; a text
-- that is no number says it as well.
--
-- :table :id :table_name        as in settle_delete.sql
-- :handed                       what goes on, as columns of e with names, each behind a comma
-- :next_table :next_columns     the next queue's table, and its columns for that
-- :next_table_name              its name as a literal
-- :next_values                  the same names, as columns of g, or the answer r.response
-- :responses                    a join of g with the answers r; empty when those do not go on
-- $1 bigint[]   ids
-- $2 tid[]      places
-- $3 bytea[]    with :responses: what was answered to each
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
    returning :id as id:handed
), moved as materialized (
    select pg_catalog.array_agg(m.id) as ids from pg_catalog.unnest($1::bigint[]) as m (id)
    where (select w.blind from way w) is not true
      and (select pg_catalog.count(*) from placed) < pg_catalog.cardinality($1::bigint[])
      and (m.id = any (select p.id from placed p)) is not true
), listed as (
    delete from :table e
    where :id = any ((select m.ids from moved m)::bigint[])
    returning :id as id:handed
), gone as materialized (
    select * from placed union all select * from listed
), handed_on as (
    insert into :next_table (:next_columns)
    select :next_values from gone g:responses order by g.id
    returning 1
)
select case when g.n = h.n then g.n
            else pg_catalog.concat(g.n - h.n, ' of ', g.n, ' rows did not go into ', :next_table_name, ': a trigger keeps them out')::bigint
       end as gone,
       case when g.n < pg_catalog.cardinality($1::bigint[]) then pg_catalog.set_config('courier.missing', 'yes', true) end as missing
from (select pg_catalog.count(*) as n from gone) g, (select pg_catalog.count(*) as n from handed_on) h
