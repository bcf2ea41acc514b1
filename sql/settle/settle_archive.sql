-- Moves delivered events from the table to the archive: what was still there, exactly once. The rows are found as in
-- settle_delete.sql.
--
-- :table :id :key   the queue's table (as e), its order column and its key
-- $1 bigint[]  ids
-- $2 text      queue
-- No columns; the row count is the number of events that were still there.
with gone as (
    delete from only :table e
    where e.ctid = any (array(select e.ctid from only :table e where :id = any ($1::bigint[]) order by :id))
    returning :id as id, (:key)::text as key, pg_catalog.row_to_json(e.*) as original
), counted as materialized (
    select pg_catalog.count(*) as n from gone
), moved as (
    delete from :table e
    where :id = any (case when (select n from counted) < pg_catalog.cardinality($1::bigint[]) then $1::bigint[] end)
    returning :id as id, (:key)::text as key, pg_catalog.row_to_json(e.*) as original
)
insert into outbox.archive (queue, event_id, key, original)
select $2::text, id, key, original from gone
union all
select $2::text, id, key, original from moved
