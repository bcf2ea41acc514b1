-- Takes events out of the table as dead letters.
--
-- :table :id :key :type :created_at   the queue's table (as e) and its columns as expressions, null when not mapped
-- :state        as in per_key_lock.sql
-- :table_name   the table's name as a literal
-- $1 text      queue
-- $2 bigint[]  ids
-- $3 bigint[]  attempts made
-- $4 text[]    why
-- One row, as in settle_delete.sql.
with gone as (
    delete from :table e
    using rows from (pg_catalog.unnest($2::bigint[]), pg_catalog.unnest($3::bigint[]), pg_catalog.unnest($4::text[]))
          as d (id, attempts, why)
    where :id = d.id
    returning :id as id, (:key)::text as key, (:type)::text as type, d.why, d.attempts,
              pg_catalog.row_to_json(e.*) as original, (:created_at)::timestamptz as created_at
), buried as (
    insert into :state.dead (queue, event_id, key, type, reason, attempts, source_table, original, created_at)
    select $1::text, id, key, type, why, attempts, :table_name, original, created_at from gone
)
select n as gone, case when n < pg_catalog.cardinality($2::bigint[]) then pg_catalog.set_config('courier.missing', 'yes', true) end as missing
from (select pg_catalog.count(*) as n from gone) as gone
