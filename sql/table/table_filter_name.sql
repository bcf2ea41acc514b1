-- What could be meant by a name that a statement of ours does not find, as it looks in pg_catalog alone: what is called so in
-- another schema, best in one of the role's own search_path. That is in force from here to the end of this statement, whose own
-- names are found by then.
--
-- $1 text   the statement
-- $2 int    where the name is in it, in characters from 1
-- $3 oid    the table. What pg_catalog has, too, is meant as another's only where that takes a type of its columns
-- -> schema text; in_path boolean: of the role; written text: what to write instead. No row: nothing is called so, or the name
--    has a schema already
with path as materialized (
    select pg_catalog.set_config('search_path', s.reset_val, true) as text from pg_catalog.pg_settings s where s.name = 'search_path'
), schemas as materialized (
    select pg_catalog.current_schemas(false) as names from path p where p.text is not null
), place as materialized (
    select pg_catalog.substr($1::text, $2::int) as rest
), symbol as materialized (
    select pg_catalog.substring(p.rest, '^[-+*/<>=~!@#%^&|`?]+') as text from place p
), word as materialized (
    select w.parts[1] as text
    from place p cross join lateral (select case when p.rest ~ '^("|(?!\d)\w)' then pg_catalog.parse_ident(p.rest, false) end as parts) w
    where pg_catalog.cardinality(w.parts) = 1
), called (namespace, written, takes) as (
    select o.oprnamespace, pg_catalog.format('operator(%I.%s)', n.nspname, s.text), array[o.oprleft, o.oprright]
      from symbol s join pg_operator o on o.oprname::text = s.text join pg_namespace n on n.oid = o.oprnamespace
    union all
    select x.namespace, pg_catalog.format('%I.%I', n.nspname, w.text), x.takes
      from word w
     cross join lateral (select p.pronamespace as namespace, p.proargtypes::oid[] as takes from pg_proc p where p.proname::text = w.text
                         union all select t.typnamespace, '{}' from pg_type t where t.typname::text = w.text
                         union all select c.relnamespace, '{}' from pg_class c where c.relname::text = w.text) x
      join pg_namespace n on n.oid = x.namespace
)
select n.nspname::text as schema, p.place is not null as in_path, c.written
  from called c
  join pg_namespace n on n.oid = c.namespace
 cross join schemas s
  left join lateral (select pg_catalog.array_position(s.names, n.nspname) as place) p on true
 where n.nspname <> 'pg_catalog' and n.nspname !~ '^pg_t(emp|oast)'
   and (not exists (select from called k join pg_namespace b on b.oid = k.namespace where b.nspname = 'pg_catalog')
        or exists (select from pg_attribute a join pg_type t on t.oid = a.atttypid join pg_namespace b on b.oid = t.typnamespace
                    where a.attrelid = $3::oid and a.attnum > 0 and a.atttypid = any (c.takes) and b.nspname <> 'pg_catalog'))
 order by p.place nulls last, n.nspname
 limit 1;
