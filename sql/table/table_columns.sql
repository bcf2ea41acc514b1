-- The columns of a table. A domain counts as its base type, also over another domain: libpq reports that one too.
-- $1 table oid
-- -> attnum int, name text, name_sql text (quoted), type text, not_null boolean,
--    loose boolean: its collation takes texts of different bytes for equal
select a.attnum,
       a.attname::text,
       pg_catalog.format('"%s"', pg_catalog.replace(a.attname, '"', '""')),
       pg_catalog.format_type((with recursive base (oid, under) as (
                        select t.oid, t.typbasetype
                        union all
                        select n.oid, n.typbasetype from base b join pg_type n on n.oid = b.under)
                    select oid from base where under = 0), null),
       a.attnotnull,
       exists (select from pg_collation c where c.oid = a.attcollation and not c.collisdeterministic)
  from pg_attribute a
  join pg_type t on t.oid = a.atttypid
 where a.attrelid = $1::oid
   and a.attnum > 0
   and not a.attisdropped
 order by a.attnum;
