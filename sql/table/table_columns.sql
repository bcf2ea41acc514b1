-- The columns of a table. A domain counts as its base type: libpq reports that one too.
-- $1 table oid
-- -> attnum int, name text, name_sql text (quoted), type text, not_null boolean
select a.attnum,
       a.attname::text,
       format('"%s"', replace(a.attname, '"', '""')),
       format_type(case t.typtype when 'd' then t.typbasetype else t.oid end, null),
       a.attnotnull
  from pg_attribute a
  join pg_type t on t.oid = a.atttypid
 where a.attrelid = $1::oid
   and a.attnum > 0
   and not a.attisdropped
 order by a.attnum;
