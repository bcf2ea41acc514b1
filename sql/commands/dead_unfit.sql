-- Which dead letters have a value that would be lost without a word, and where.
--   lost     the table has no column for it
--   both     :moved sends it into a column that has another value
--   absent   the letter has no column that the queue sends as its payload, and this, of which :moved says nothing, may be it
--   keyless  the letter has a key, and would have none in the table
-- A name that a generated column has now stays where it is in a letter that knows the column where its values would go.
-- :known, :moved, :moved_to, :generated, :payload, :mapped, :key_column (sql/commands/dead_columns.sql); $1 bigint[] dead_ids
-- -> dead_id bigint, problem text, name text: one of each; more text: the other column of `both` and `absent`
with moved as (
    select m.old_name, m.new_name from rows from (pg_catalog.unnest(:moved), pg_catalog.unnest(:moved_to)) m(old_name, new_name)
), field as materialized (
    select d.dead_id, d.original, o.key as name, o.number, m.old_name, m.new_name
      from outbox.dead d
     cross join lateral pg_catalog.json_each_text(d.original) with ordinality o(key, value, number)
      left join moved m on m.old_name = o.key and not (o.key = any (:generated) and (d.original -> m.new_name) is not null)
     where d.dead_id = any ($1::bigint[]) and o.value is not null
), problem as (
    select f.dead_id, 1 as rank, f.number, case when f.new_name is null then 'lost' else 'both' end as problem, f.name, f.new_name as more
      from field f
     where case when f.old_name is null then f.name <> all (:known) else (f.original ->> f.new_name) is not null end
    union all
    select f.dead_id, 2, f.number, 'absent', f.name, :payload
      from field f
     where :payload is not null and (f.original -> :payload) is null and f.name <> all (:mapped) and f.old_name is null
       and not exists (select from moved m where m.new_name = :payload and (m.old_name = '' or (f.original -> m.old_name) is not null))
    union all
    select d.dead_id, 3, 0, 'keyless', :key_column, null
      from outbox.dead d
     where d.dead_id = any ($1::bigint[]) and d.key is not null and :key_column is not null and (d.original ->> :key_column) is null
       and not exists (select from moved m where m.new_name = :key_column and (d.original ->> m.old_name) is not null)
)
select distinct on (p.dead_id) p.dead_id, p.problem, p.name, p.more
  from problem p
 order by p.dead_id, p.rank, p.number;
