-- The rights that a relay lacks, by object. Nothing here needs a right itself.
-- $1 table oid, $2 delivered rows are archived boolean
-- -> object text, missing text, remedy text
with wanted (kind, object, right_, remedy) as (
    select 's', n.oid, 'USAGE', pg_catalog.format('grant usage on schema %I to %I;', n.nspname, current_user)
      from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where c.oid = $1::oid and n.nspname <> 'outbox'
    union all
    select 't', c.oid, r, pg_catalog.format('grant select, delete on %I.%I to %I;', n.nspname, c.relname, current_user)
      from pg_class c
      join pg_namespace n on n.oid = c.relnamespace
     cross join pg_catalog.unnest(array['SELECT', 'DELETE']) r
     where c.oid = $1::oid
    union all
    select 's', n.oid, 'USAGE', pg_catalog.format('grant outbox_relay to %I;', current_user)
      from pg_namespace n
     where n.nspname = 'outbox'
    union all
    select 't', c.oid, w.right_, pg_catalog.format('grant outbox_relay to %I;', current_user)
      from (values ('parked', 'SELECT'), ('parked', 'INSERT'), ('parked', 'UPDATE'), ('parked', 'DELETE'),
                   ('dead', 'INSERT'), ('archive', 'INSERT')) w (name, right_)
      join pg_namespace n on n.nspname = 'outbox'
      join pg_class c on c.relnamespace = n.oid and c.relname = w.name
     where w.name <> 'archive' or $2::boolean
)
select case kind when 's' then 'schema ' || (select nspname from pg_namespace where oid = object)
                 else (select n.nspname || '.' || c.relname
                         from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = object) end,
       pg_catalog.string_agg(right_, ', ' order by right_),
       remedy
  from wanted
 where not case kind when 's' then pg_catalog.has_schema_privilege(object, right_) else pg_catalog.has_table_privilege(object, right_) end
 group by kind, object, remedy
 order by kind, object <> $1::oid, object;
