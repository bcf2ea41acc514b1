-- The table that a queue names, exactly or in lower case as SQL folds it.
-- $1 schema text, $2 table text
-- -> oid, name_sql text (quoted), plain_name text, relkind text
select c.oid,
       pg_catalog.format('"%s"."%s"', pg_catalog.replace(n.nspname, '"', '""'), pg_catalog.replace(c.relname, '"', '""')),
       n.nspname || '.' || c.relname,
       c.relkind::text
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
 where n.nspname::text in ($1::text, pg_catalog.lower($1::text))
   and c.relname::text in ($2::text, pg_catalog.lower($2::text))
   and c.relkind in ('r', 'p', 'v', 'm', 'f')
 order by (n.nspname::text = $1::text) desc, (c.relname::text = $2::text) desc
 limit 1;
