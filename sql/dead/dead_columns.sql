-- The columns of a table that an INSERT may give, as a list and as fields of a record r.
-- $1 table oid
-- -> columns text, fields text
select string_agg(format('"%s"', replace(a.attname, '"', '""')), ', ' order by a.attnum),
       string_agg(format('r."%s"', replace(a.attname, '"', '""')), ', ' order by a.attnum)
  from pg_attribute a
 where a.attrelid = $1::oid
   and a.attnum > 0
   and not a.attisdropped
   and a.attgenerated = '';
