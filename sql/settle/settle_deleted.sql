-- The head of the statements that take delivered events out of the table, and their :deleted: the rows that they take out, each
-- exactly once, as deleted. What becomes of these, and how many they are, is told behind it.
--
-- A row is looked for where it was when it was read: that takes less than two thirds of a look-up by its id. But a place
-- may be another row's by now. So what was taken from there has to be these events and no others: they are when their ids
-- come in the order of $1, as the ids that belong to the places of a scan do where these are given in their order, and then
-- nothing else has to be asked for a row. If they do not, each is looked up; and if one is another event after all, the
-- statement fails and has done nothing, and whoever settles gives no places the next time. What is not found where it was, as
-- somebody has updated it since, or does so at this moment, is looked for by its id. A row that a trigger keeps must not be
-- tried twice, and a place is one of this table alone, not of its partitions: tables with partitions, children or a trigger
-- for each row before DELETE know only the second way. Rows are locked in the order of their places, then those that have
-- moved; who locks several of them in another order may meet a deadlock, which the relay survives by trying again.
--
-- Of a table that vacuum has seen empty and could not make shorter the planner believes that it has no rows, however many
-- have come since, and then any index that has :id anywhere in it looks as good as the one that begins with it: a
-- settlement of 2,560 events was seen to read the index on key and id 2,560 times from end to end. A table of events that
-- is mostly empty is often like that. For as long as the planner is blind, what is not found where it was is looked for in
-- the order of :id, which only the right index has (session_settings.sql forbids to sort), and deleted where that says: a
-- row that somebody updates at that very moment may stay, and one that is another event since then does, also on servers
-- from before November 2025, which do not look at its place again. The ids are named in there only then, as that look-up is
-- part of each settlement.
--
-- Of rows that are missing, settle_undeleted.sql finds out which were deleted and which have stayed.
--
-- :table :id    the queue's table (as e) and its order column
-- :table_class  the table as a regclass
-- :taken        what else of a row is wanted, as columns of e with names, each behind a comma
-- $1 bigint[]   ids
-- $2 tid[]      places, of any of them; quickest where both are in the order of the places
-- deleted has the columns id and those of :taken; tally has one row: their number n, and missing, without
-- meaning, which settle_undeleted.sql hears of.
with way as materialized (
    select c.reltuples = 0 and c.relpages > 0 as blind,
           not exists (select from pg_catalog.pg_trigger t where t.tgrelid = c.oid and t.tgtype & 11 = 11) as by_place
    from pg_catalog.pg_class c
    where c.oid = :table_class and c.relkind = 'r' and not c.relhassubclass
), placed as (
    delete from only :table e
    where e.ctid = any (case when (select w.by_place from way w) then $2::tid[] end)
    returning :id as id:taken
), found as materialized (
    select f.ids = $1::bigint[] as whole from (select pg_catalog.array_agg(p.id::bigint) as ids from placed p) as f
), stranger as materialized (
    select pg_catalog.concat('event ', p.id, ' is where one was that was delivered: settled again, by ids')::bigint as id
    from placed p
    where (select f.whole from found f) is not true and (p.id = any (select pg_catalog.unnest($1::bigint[]))) is not true
    limit 1
), moved as materialized (
    select pg_catalog.array_agg(m.id) as ids from pg_catalog.unnest($1::bigint[]) as m (id)
    where (select f.whole from found f) is not true
      and (m.id = any (select p.id from placed p)) is not true
), listed as (
    delete from :table e
    where :id = any (case when (select w.blind from way w) is not true then (select m.ids from moved m) end::bigint[])
    returning :id as id:taken
), sought as (
    delete from only :table e
    where e.ctid = any (array(
        select e.ctid from only :table e
        where :id = any (case when (select w.blind from way w) then (select m.ids from moved m) end::bigint[]) order by :id))
      and (:id = any (select pg_catalog.unnest($1::bigint[]))) is true
    returning :id as id:taken
), deleted as not materialized (
    select * from placed union all select * from listed union all select * from sought
), tally as materialized (
    select t.n, case when t.n < pg_catalog.cardinality($1::bigint[]) then pg_catalog.set_config('courier.missing', 'yes', true) end as missing
    from (select case when (select f.whole from found f) then pg_catalog.cardinality($1::bigint[])
                 else (select pg_catalog.count(*) from deleted) + coalesce((select s.id from stranger s), 0) end as n) as t
)
