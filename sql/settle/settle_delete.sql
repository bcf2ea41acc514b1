-- Takes delivered events out of the table.
--
-- Of a table that vacuum has seen empty and could not make shorter the planner believes that it has no rows, however many
-- have come since, and then any index that has :id anywhere in it looks as good as the one that begins with it: a
-- settlement of 2,560 events was seen to read the index on key and id 2,560 times from end to end. For as long as the
-- planner is blind, rows are found in the order of :id, which only the right index has (session_settings.sql forbids to
-- sort), and taken by their place; that is as fast. It is not the way for all times: a place is one of this table alone,
-- not of its partitions, and a row that somebody updates at the same moment has another one: it stays.
--
-- Of rows that are missing, settle_kept.sql finds out which were gone and which have stayed.
--
-- :table :id    the queue's table (as e) and its order column
-- :table_name   the table's name as a literal
-- $1 bigint[]   ids
-- One row: gone bigint, the number of events that were still there; missing, without meaning.
with blind as materialized (
    select from pg_catalog.pg_class c
    where c.oid = :table_name::regclass and c.reltuples = 0 and c.relpages > 0 and c.relkind = 'r' and not c.relhassubclass
), placed as (
    delete from only :table t
    where t.ctid = any (array(
        select e.ctid from only :table e
        where :id = any (case when exists (select from blind) then $1::bigint[] end)
        order by :id))
    returning 1
), listed as (
    delete from :table e
    where :id = any (case when not exists (select from blind) then $1::bigint[] end)
    returning 1
)
select n as gone, case when n < pg_catalog.cardinality($1::bigint[]) then pg_catalog.set_config('courier.missing', 'yes', true) end as missing
from (select (select pg_catalog.count(*) from placed) + (select pg_catalog.count(*) from listed) as n) as gone
