-- As deleted_by_place.sql, for events that are not where they were read, and for tables whose rows have no place of their own: they
-- are looked for by their ids.
--
-- Of a table that vacuum has seen empty and could not make shorter the planner believes that it has no rows, however many
-- have come since, and then any index that has :id anywhere in it looks as good as the one that begins with it: a
-- settlement of 2,560 events was seen to read the index on key and id 2,560 times from end to end. A table of events that
-- is mostly empty is often like that. For as long as the planner is blind, rows are looked for in the order of :id, which
-- only the right index has (session_settings.sql forbids to sort), and deleted where that says: a row that somebody updates
-- at that very moment may stay, and one that is another event since then does, also on servers from before November 2025,
-- which do not look at its place again.
--
-- Rows are locked in the order of their ids; who locks several of them in another order may meet a deadlock, which the relay
-- survives by trying again. Of rows that are missing, settle_undeleted.sql finds out which were deleted and which have stayed.
--
-- :table :id :taken   as in deleted_by_place.sql
-- :table_class        the table as a regclass
-- $1 bigint[]   ids
-- $2 tid[]      none: here for the numbers of the others
-- deleted and tally as there; missing tells settle_undeleted.sql, if some are
with way as materialized (
    select c.reltuples = 0 and c.relpages > 0 as blind from pg_catalog.pg_class c
    where c.oid = :table_class and c.relkind = 'r' and not c.relhassubclass and pg_catalog.cardinality($2::tid[]) = 0
), listed as (
    delete from :table e
    where :id = any (case when (select w.blind from way w) is not true then $1::bigint[] end)
    returning :id as id:taken
), sought as (
    delete from only :table e
    where e.ctid = any (array(
        select e.ctid from only :table e
        where :id = any (case when (select w.blind from way w) then $1::bigint[] end) order by :id))
      and (:id = any (select pg_catalog.unnest($1::bigint[]))) is true
    returning :id as id:taken
), deleted as not materialized (
    select * from listed union all select * from sought
), tally as materialized (
    select t.n, case when t.n < pg_catalog.cardinality($1::bigint[]) then pg_catalog.set_config('courier.missing', 'yes', true) end as missing
    from (select pg_catalog.count(*) as n from deleted) as t
)
