-- The table that a queue names, exactly or in lower case as SQL folds it.
-- $1 schema text, $2 table text
-- -> oid, name_sql text (quoted), plain_name text, relkind text, places boolean: a row can be deleted where it was read
select c.oid,
       pg_catalog.format('"%s"."%s"', pg_catalog.replace(n.nspname, '"', '""'), pg_catalog.replace(c.relname, '"', '""')),
       n.nspname || '.' || c.relname,
       c.relkind::text,
       c.relkind = 'r' and not c.relhassubclass
           and not exists (select from pg_trigger t where t.tgrelid = c.oid and t.tgtype & 11 = 11) -- row, before, delete
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
 where n.nspname::text in ($1::text, pg_catalog.lower($1::text))
   and c.relname::text in ($2::text, pg_catalog.lower($2::text))
   and c.relkind in ('r', 'p', 'v', 'm', 'f')
 order by (n.nspname::text = $1::text) desc, (c.relname::text = $2::text) desc
 limit 1;
