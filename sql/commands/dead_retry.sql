-- Puts dead letters back into their table, under the ids they had, and points the relays at the first of each key: it lies below
-- the ids they look at now. One statement, so all of it or nothing.
-- The row comes back as it was but for one thing: row_to_json() writes SQL NULL and the JSON null alike, so the latter in a
-- json column comes back as SQL NULL. :moved says of names that the table has no more where their values go (:moved_to; null:
-- nowhere); what may not go anywhere dead_unfit.sql has found.
-- If the answer has a problem, or not as many rows went in as were taken, the caller undoes it.
--   kept out  a trigger has let others in, but not this one
--   computed  a generated column has another value than the letter
-- :table, :columns, :fields, :moved, :moved_to, :generated, :computed, :compared, :computes, :put_id (sql/commands/dead_columns.sql);
-- :keyless, :conflict, :entry_key and :entry (of a letter d, the key of its entry and what has one entry)
-- $1 queue text, $2 bigint[] dead_ids
-- -> taken bigint, put bigint; for each problem a row with dead_id bigint, problem text, and of `computed` the column's name text
with taken as (
    delete from outbox.dead d where d.queue = $1::text and d.dead_id = any ($2::bigint[]) returning d.dead_id, d.event_id, d.key, d.original
), moved as (
    select m.old_name, m.new_name from rows from (pg_catalog.unnest(:moved), pg_catalog.unnest(:moved_to)) m(old_name, new_name)
), letters as materialized (
    select d.dead_id, d.event_id, case when not exists (select from moved) then d.original else (
               select pg_catalog.json_object_agg(coalesce(m.new_name, o.key), o.value)
                 from pg_catalog.json_each(d.original) o
                 left join moved m on m.old_name = o.key and not (o.key = any (:generated) and (d.original -> m.new_name) is not null)
                where case when m.old_name is null then not exists (
                               select from moved n
                                where n.new_name = o.key and (d.original ->> n.old_name) is not null and n.old_name <> all (:generated))
                           else m.new_name is not null and ((d.original ->> o.key) is not null or (d.original -> m.new_name) is null)
                      end) end as original
      from taken d
), put as (
    insert into :table as e (:columns) overriding system value
    select :fields
      from letters w
     cross join lateral pg_catalog.json_populate_record(null:::table, w.original) r
     order by w.event_id
    returning :put_id as id, :computed as computed
), pointed as (
    insert into outbox.parked as p (queue, key, event_id, keyless, attempts, next_at)
    select $1::text, :entry_key, pg_catalog.min(d.event_id), :keyless, 0, pg_catalog.now()
      from taken d
     group by :entry
    on conflict :conflict do update
       set event_id = least(p.event_id, excluded.event_id), updated_at = pg_catalog.now(),
           -- A worker that has the key keeps it; after its event comes the one put back, which begins anew.
           attempts = case when p.token is null or p.event_id = excluded.event_id then 0 else p.attempts end,
           last_error = case when p.token is null then '' else p.last_error end,
           next_at = case when p.resume_at is null and p.token is null then pg_catalog.now() else p.next_at end,
           resume_at = case when p.resume_at is not null and p.token is null then pg_catalog.now() else p.resume_at end
), counted as (
    select (select pg_catalog.count(*) from taken) as taken, (select pg_catalog.count(*) from put) as put
), problem as (
    select l.dead_id, 'kept out' as problem, null::text as name
      from letters l cross join counted c
     where c.put < c.taken and l.event_id not in (select p.id from put p)
    union all
    select l.dead_id, 'computed', g.name
      from letters l
      join put p on p.id = l.event_id
     cross join lateral pg_catalog.json_populate_record(null:::table, l.original) r
     cross join lateral (values :compared) g(name, has, had)
     where :computes and g.had is not null and g.has is distinct from g.had
)
select c.taken, c.put, p.dead_id, p.problem, p.name from counted c left join problem p on true;
