-- Takes delivered events out of the table.
--
-- A table that vacuum has last seen empty counts as empty for the planner however much has come since, and then any
-- index that has :id anywhere in it looks as good as the one that begins with it: a settlement of 2,560 events was seen
-- to read the index on key and id 2,560 times from end to end. So the rows are found in the order of :id, which only
-- the right index has (session_settings.sql forbids to sort), and taken by their place. This costs what
-- `delete where :id = any ($1)` does. A place is one of this table alone, hence ONLY: rows of partitions are taken by
-- their ids, and so is a row that has another place because somebody has updated it at the same moment.
--
-- :table :id   the queue's table (as e) and its order column
-- $1 bigint[]  ids
-- One row: gone bigint, the number of events that were still there.
with gone as (
    delete from only :table t
    where t.ctid = any (array(select e.ctid from only :table e where :id = any ($1::bigint[]) order by :id))
    returning 1
), counted as materialized (
    select pg_catalog.count(*) as n from gone
), moved as (
    delete from :table e
    where :id = any (case when (select n from counted) < pg_catalog.cardinality($1::bigint[]) then $1::bigint[] end)
    returning 1
)
select (select n from counted) + (select pg_catalog.count(*) from moved) as gone
