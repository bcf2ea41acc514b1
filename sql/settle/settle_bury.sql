-- Takes events out of the table as dead letters.
--
-- They are looked for by their ids. Of a table that the planner is blind to (see deleted_by_id.sql) each time all of it would be
-- read for that: then their places are found first, in the order of :id, and nothing else is tried. What somebody updates at
-- the same moment may stay then, and settle_undeleted.sql finds it.
--
-- :table :id :key :type :created_at   the queue's table (as e) and its columns as expressions, null when not mapped
-- :state        as in lock_ids.sql
-- :table_name   the table's name as a literal, to be read
-- :table_class  the table as a regclass
-- $1 text      queue
-- $2 bigint[]  ids
-- $3 bigint[]  attempts made
-- $4 text[]    why
-- One row, as in settle_delete.sql.
with way as materialized (
    select c.reltuples = 0 and c.relpages > 0 as blind from pg_catalog.pg_class c
    where c.oid = :table_class and c.relkind = 'r' and not c.relhassubclass
), found as materialized (
    select d.id, d.attempts, d.why, w.place
    from rows from (pg_catalog.unnest($2::bigint[]), pg_catalog.unnest($3::bigint[]), pg_catalog.unnest($4::text[]))
         as d (id, attempts, why)
    cross join lateral (select e.ctid as place from only :table e where :id between d.id and d.id order by :id offset 0) as w
    where (select w.blind from way w)
), placed as (
    delete from only :table e
    using found d
    where e.ctid = d.place and (:id = d.id) is true
    returning :id as id, (:key)::text as key, (:type)::text as type, d.why, d.attempts,
              pg_catalog.row_to_json(e.*) as original, (:created_at)::timestamptz as created_at
), listed as (
    delete from :table e
    using rows from (pg_catalog.unnest($2::bigint[]), pg_catalog.unnest($3::bigint[]), pg_catalog.unnest($4::text[]))
          as d (id, attempts, why)
    where :id = d.id and (select w.blind from way w) is not true
    returning :id as id, (:key)::text as key, (:type)::text as type, d.why, d.attempts,
              pg_catalog.row_to_json(e.*) as original, (:created_at)::timestamptz as created_at
), deleted as (
    select * from placed union all select * from listed
), buried as (
    insert into :state.dead (queue, event_id, key, type, reason, attempts, source_table, original, created_at)
    select $1::text, id, key, type, why, attempts, :table_name, original, created_at from deleted
)
select n as deleted, case when n < pg_catalog.cardinality($2::bigint[]) then pg_catalog.set_config('courier.missing', 'yes', true) end as missing
from (select pg_catalog.count(*) as n from deleted) as deleted
