-- Triggers that fire in our sessions, where the path is pg_catalog alone, and whose functions rely on another. Those in C look up
-- no names, and those of the schema outbox write theirs in full.
--
-- $1 table oid
-- $2 int   the events that count, as in pg_trigger.tgtype: insert 4, delete 8
-- -> trigger text, function text, remedy text
select pg_catalog.format('trigger %I on %I.%I', t.tgname, n.nspname, c.relname),
       f.name,
       pg_catalog.format('alter function %s set search_path = %s, pg_temp;', f.name,
                         pg_catalog.concat_ws(', ', pg_catalog.quote_ident(s.nspname),
                                              case when n.oid <> s.oid then pg_catalog.quote_ident(n.nspname) end))
  from pg_trigger t
  join pg_class c on c.oid = t.tgrelid
  join pg_namespace n on n.oid = c.relnamespace
  join pg_proc p on p.oid = t.tgfoid
  join pg_namespace s on s.oid = p.pronamespace
  join pg_language l on l.oid = p.prolang
 cross join lateral (select pg_catalog.format('%I.%I()', s.nspname, p.proname) as name) f
 where t.tgrelid in (select $1::oid union select x.relid from pg_catalog.pg_partition_tree($1::oid) x)
   and t.tgparentid = 0
   and not t.tgisinternal
   and t.tgtype & $2::int <> 0
   and t.tgenabled in ('O', 'A')
   and l.lanname not in ('c', 'internal')
   and s.nspname <> 'outbox'
   and not exists (select from pg_catalog.unnest(p.proconfig) g where pg_catalog.starts_with(g, 'search_path='))
 order by 1;
