-- Puts the dead letters of one key back into their table, under the ids they had, and points the relays at the first:
-- it lies below the ids they look at now. One statement, so all of it or nothing.
-- The row comes back as it was but for one thing: row_to_json() writes SQL NULL and the JSON null alike, so the latter in a
-- json column comes back as SQL NULL.
-- A letter that would lose a value goes nowhere, and none beside it: its id, the name and the problem are in the answer.
-- :moved says of names that the table has no more where their values go (:moved_to; null: nowhere). Where the table has such a
-- name again, that is so for letters without the column of :moved_to.
-- The caller rolls back when there is a problem, because some problems show in the inserted rows only.
-- :table, :id, :columns, :fields, :known, :moved, :moved_to, :instead, :missing, :computed (sql/commands/dead_columns.sql);
-- :type_name the queue's type column as a literal, or null; :other_key whether a row e is not of the key $2;
-- :match (rows d of outbox.dead: one key's, or one event's, by $2); :keyless, :conflict
-- $1 queue text, $2 key or event id text, $3 only this event id bigint or null, $4 only errors like this text or null
-- -> count bigint, and how many of them are in the table again bigint: fewer when a trigger keeps some out; of a letter that does
-- not fit: event_id bigint, problem text, name text, and more text; all null when all fit. The problems:
--    lost       the table has no column of that name
--    both       :moved sends the value of name to a column (more) that has a value
--    instead    the queue maps a column (more) that the letter lacks, and the letter has a value in the column name
--    type       the letter has the type that it died with in another column (more), not in the queue's type column (name)
--    computed   the column name is generated, and the row has another value than the letter
--    key        the row is not of the letter's key
with taken as (
    delete from outbox.dead d
     where d.queue = $1::text
       and :match
       and ($3::bigint is null or d.event_id = $3::bigint)
       and ($4::text is null or d.reason like $4)
    returning d.event_id, d.type, d.original
), moved as (
    select m.old_name, m.new_name, m.old_name = any (:known) as there
      from rows from (pg_catalog.unnest(:moved), pg_catalog.unnest(:moved_to)) m(old_name, new_name)
), letters as (
    select t.event_id, t.type, case when not exists (select from moved) then t.original else (
               select pg_catalog.json_object_agg(coalesce(m.new_name, o.key), o.value)
                 from pg_catalog.json_each(t.original) o
                 left join moved m on m.old_name = o.key and not (m.there and (t.original -> m.new_name) is not null)
                where case when m.old_name is null then not exists (
                               select from moved n
                                where n.new_name = o.key and not n.there and (t.original ->> n.old_name) is not null)
                           else m.new_name is not null and ((t.original ->> o.key) is not null or (t.original -> m.new_name) is null)
                      end) end as original
      from taken t
), unfit as (
    select t.event_id, case when m.old_name is null then 'lost' else 'both' end as problem, o.key as name, m.new_name as more
      from taken t
     cross join lateral pg_catalog.json_each_text(t.original) o
      left join moved m on m.old_name = o.key and not (m.there and (t.original -> m.new_name) is not null)
     where o.value is not null
       and case when m.old_name is null then o.key <> all (:known) else (t.original ->> m.new_name) is not null end
    union all
    select w.event_id, 'instead', p.name, p.missing
      from letters w
     cross join rows from (pg_catalog.unnest(:instead), pg_catalog.unnest(:missing)) p(name, missing)
     where (w.original -> p.missing) is null
       and (w.original ->> p.name) is not null
       and p.name <> all (:moved)
       and p.name not in (select m.new_name from moved m where m.new_name is not null)
    union all
    select w.event_id, 'type', :type_name, o.key
      from letters w
     cross join lateral pg_catalog.json_each_text(w.original) o
     where pg_catalog.rtrim(o.value) = pg_catalog.rtrim(w.type)
       and pg_catalog.rtrim(w.original ->> :type_name) is distinct from pg_catalog.rtrim(w.type)
       and :type_name <> all (:moved)
       and :type_name <> all (pg_catalog.array_remove(:moved_to, null))
), put as (
    insert into :table as e (:columns) overriding system value
    select :fields
      from letters w
     cross join lateral pg_catalog.json_populate_record(null:::table, w.original) r
     where not exists (select from unfit)
     order by w.event_id
    returning e.*
), changed as (
    select w.event_id, 'computed' as problem, g.name, null::text as more
      from put e
      join letters w on w.event_id = e.:id
     cross join lateral pg_catalog.json_populate_record(null:::table, w.original) r
     cross join lateral (values :computed) g(name, had, has)
     where g.had is not null and g.has is distinct from g.had
    union all
    select e.:id, 'key', null, null from put e where :other_key
), pointed as (
    insert into outbox.parked as p (queue, key, event_id, keyless, attempts, next_at)
    select $1::text, case when :keyless then '' else $2::text end, pg_catalog.min(t.event_id), :keyless, 0, pg_catalog.now()
      from taken t
    having pg_catalog.count(*) > 0
    on conflict :conflict do update
       set event_id = least(p.event_id, excluded.event_id), updated_at = pg_catalog.now(),
           -- A worker that has the key keeps it; after its event comes the one put back.
           attempts = case when p.token is null then 0 else p.attempts end,
           last_error = case when p.token is null then '' else p.last_error end,
           next_at = case when p.resume_at is null and p.token is null then pg_catalog.now() else p.next_at end,
           resume_at = case when p.resume_at is not null and p.token is null then pg_catalog.now() else p.resume_at end
)
select (select pg_catalog.count(*) from taken), (select pg_catalog.count(*) from put), u.event_id, u.problem, u.name, u.more
  from (select) one
  left join (select n.* from (select f.*, 1 as step from unfit f union all select c.*, 2 from changed c) n
              order by n.step, n.event_id, n.problem <> 'lost', n.name limit 1) u on true;
