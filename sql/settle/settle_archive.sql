-- Moves delivered events from the table to the archive: what was still there, exactly once. Two ways to find the rows, as
-- in settle_delete.sql.
--
-- :table :id :key   the queue's table (as e), its order column and its key
-- :created_at       its time of creation, or null
-- :state            as in per_key_lock.sql
-- :table_name       the table's name as a literal
-- $1 bigint[]  ids
-- $2 text      queue
-- One row, as in settle_delete.sql.
with blind as materialized (
    select from pg_catalog.pg_class c
    where c.oid = :table_name::regclass and c.reltuples = 0 and c.relpages > 0 and c.relkind = 'r' and not c.relhassubclass
), placed as (
    delete from only :table e
    where e.ctid = any (array(
        select e.ctid from only :table e
        where :id = any (case when exists (select from blind) then $1::bigint[] end)
        order by :id))
    returning :id as id, (:key)::text as key, (:created_at)::timestamptz as created_at, pg_catalog.row_to_json(e.*) as original
), listed as (
    delete from :table e
    where :id = any (case when not exists (select from blind) then $1::bigint[] end)
    returning :id as id, (:key)::text as key, (:created_at)::timestamptz as created_at, pg_catalog.row_to_json(e.*) as original
), archived as (
    insert into :state.archive (queue, event_id, key, created_at, original)
    select $2::text, id, key, created_at, original from placed
    union all
    select $2::text, id, key, created_at, original from listed
)
select n as gone, case when n < pg_catalog.cardinality($1::bigint[]) then pg_catalog.set_config('courier.missing', 'yes', true) end as missing
from (select (select pg_catalog.count(*) from placed) + (select pg_catalog.count(*) from listed) as n) as gone
