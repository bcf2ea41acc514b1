-- Puts the dead letters of one key back into their table, under the ids they had, and points the relays at the first:
-- it lies below the ids they look at now. One statement, so all of it or nothing.
-- The row comes back as it was but for one thing: row_to_json() writes SQL NULL and the JSON null alike, so the latter in a
-- json column comes back as SQL NULL.
-- A letter that has a value for which the table has no column goes nowhere, and none beside it: its id and the name are in the
-- answer. :moved says of names that the table has no more where their values go (:moved_to; null: nowhere).
-- :table, :columns, :fields, :known, :moved, :moved_to (sql/commands/dead_columns.sql); :match (rows d of outbox.dead: one key's, or one event's, by $2); :keyless, :conflict
-- $1 queue text, $2 key or event id text, $3 only this event id bigint or null, $4 only errors like this text or null
-- -> count bigint, and how many of them are in the table again bigint: fewer when a trigger keeps some out; of a letter that does
-- not fit: event_id bigint, name text, and where :moved sends its value though there is one text; all null when all fit
with taken as (
    delete from outbox.dead d
     where d.queue = $1::text
       and :match
       and ($3::bigint is null or d.event_id = $3::bigint)
       and ($4::text is null or d.reason like $4)
    returning d.event_id, d.original
), moved as (
    select m.old_name, m.new_name from rows from (pg_catalog.unnest(:moved), pg_catalog.unnest(:moved_to)) m(old_name, new_name)
), unfit as (
    select t.event_id, o.key as name, m.new_name
      from taken t
     cross join lateral pg_catalog.json_each_text(t.original) o
      left join moved m on m.old_name = o.key
     where o.value is not null
       and case when m.old_name is null then o.key <> all (:known) else (t.original ->> m.new_name) is not null end
     order by t.event_id, o.key
     limit 1
), letters as (
    select t.event_id, case when not exists (select from moved) then t.original else (
               select pg_catalog.json_object_agg(coalesce(m.new_name, o.key), o.value)
                 from pg_catalog.json_each(t.original) o
                 left join moved m on m.old_name = o.key
                where case when m.old_name is null then not exists (
                               select from moved n where n.new_name = o.key and (t.original ->> n.old_name) is not null)
                           else m.new_name is not null and ((t.original ->> o.key) is not null or (t.original -> m.new_name) is null)
                      end) end as original
      from taken t
), put as (
    insert into :table (:columns) overriding system value
    select :fields
      from letters w
     cross join lateral pg_catalog.json_populate_record(null:::table, w.original) r
     where not exists (select from unfit)
     order by w.event_id
    returning 1
), pointed as (
    insert into outbox.parked as p (queue, key, event_id, keyless, attempts, next_at)
    select $1::text, case when :keyless then '' else $2::text end, pg_catalog.min(t.event_id), :keyless, 0, pg_catalog.now()
      from taken t
    having pg_catalog.count(*) > 0
    on conflict :conflict do update
       set event_id = least(p.event_id, excluded.event_id), updated_at = pg_catalog.now(),
           -- A worker that has the key keeps it; after its event comes the one put back, which begins anew.
           attempts = case when p.token is null or p.event_id = excluded.event_id then 0 else p.attempts end,
           last_error = case when p.token is null then '' else p.last_error end,
           next_at = case when p.resume_at is null and p.token is null then pg_catalog.now() else p.next_at end,
           resume_at = case when p.resume_at is not null and p.token is null then pg_catalog.now() else p.resume_at end
)
select (select pg_catalog.count(*) from taken), (select pg_catalog.count(*) from put), u.event_id, u.name, u.new_name
  from (select) one left join unfit u on true;
