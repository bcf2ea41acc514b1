-- The columns of a table that an INSERT may give, as a list and as fields of a record r. Not the dedupe_key of outbox.events:
-- since an event died another with that key may wait, and this one is not to be in its way.
-- $1 table oid
-- -> columns text, fields text
select pg_catalog.string_agg(pg_catalog.format('"%s"', pg_catalog.replace(a.attname, '"', '""')), ', ' order by a.attnum),
       pg_catalog.string_agg(pg_catalog.format('r."%s"', pg_catalog.replace(a.attname, '"', '""')), ', ' order by a.attnum)
  from pg_attribute a
 where a.attrelid = $1::oid
   and a.attnum > 0
   and not a.attisdropped
   and a.attgenerated = ''
   and (a.attname <> 'dedupe_key' or a.attrelid is distinct from pg_catalog.to_regclass('outbox.events')::oid);
