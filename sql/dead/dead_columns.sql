-- The columns of a table that an INSERT may give, as a list and as fields of a record r.
-- $1 table oid
-- -> columns text, fields text
select pg_catalog.string_agg(pg_catalog.format('"%s"', pg_catalog.replace(a.attname, '"', '""')), ', ' order by a.attnum),
       pg_catalog.string_agg(pg_catalog.format('r."%s"', pg_catalog.replace(a.attname, '"', '""')), ', ' order by a.attnum)
  from pg_attribute a
 where a.attrelid = $1::oid
   and a.attnum > 0
   and not a.attisdropped
   and a.attgenerated = '';
