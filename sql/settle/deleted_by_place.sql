-- The head of the statements that take delivered events out of the table, and their :deleted: the rows that they take out, each
-- exactly once, as deleted. What becomes of these, and how many they are, is told behind it.
--
-- A row is looked for where it was when it was read, which takes less than two thirds of a look-up by its id. By now another
-- event may be there, or none, because somebody has updated or deleted the row or a trigger keeps it. So the ids that come from
-- the places, which are scanned in their order, have to be those of $1, which are in the same order: all of them are compared at
-- once. If they differ the statement fails and has done nothing, and the relay settles the same once more, by
-- deleted_by_id.sql. SQL has no RAISE; a text that is no number says it as well. A place is one of this table alone: tables with
-- partitions or children, or with a trigger for each row before DELETE, know only the other way.
--
-- :table :id    the queue's table (as e) and its order column
-- :taken        what else of a row is wanted, as columns of e with names, each behind a comma
-- $1 bigint[]   ids, in the order of
-- $2 tid[]      their places
-- deleted has the columns id and those of :taken; tally has one row: their number n, and missing, without meaning
with deleted as (
    delete from only :table e
    where e.ctid = any ($2::tid[])
    returning :id as id:taken
), tally as (
    select case when t.ids = $1::bigint[] then pg_catalog.cardinality($1::bigint[])
                else pg_catalog.concat('not all of ', pg_catalog.cardinality($1::bigint[]),
                                       ' events are where they were read: settled again, by ids')::bigint end::bigint as n,
           null::text as missing
    from (select coalesce(pg_catalog.array_agg(d.id::bigint), '{}') as ids from deleted d) as t
)
