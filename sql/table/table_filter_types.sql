-- Columns that a condition may be about and whose type has operators of its own in another schema than pg_catalog (citext,
-- hstore): there `=` is that of a type they can be taken for, if any is.
--
-- $1 table oid, $2 the condition text
-- -> name_sql text (quoted), type text, operator text: how one of them is written
with recursive base (attnum, oid, under) as (
    select a.attnum, t.oid, t.typbasetype from pg_attribute a join pg_type t on t.oid = a.atttypid
     where a.attrelid = $1::oid and a.attnum > 0 and not a.attisdropped and $2::text ~ ('\m' || pg_catalog.regexp_replace(a.attname::text, '(\W)', '\\\1', 'g') || '\M')
    union all
    select b.attnum, t.oid, t.typbasetype from base b join pg_type t on t.oid = b.under
)
select pg_catalog.format('%I', a.attname), pg_catalog.format_type(b.oid, null),
       (select pg_catalog.format('operator(%I.%s)', n.nspname, o.oprname) from pg_operator o join pg_namespace n on n.oid = o.oprnamespace
         where b.oid in (o.oprleft, o.oprright) and n.nspname <> 'pg_catalog' order by o.oprname <> '=', o.oprname limit 1) as operator
  from base b
  join pg_attribute a on a.attrelid = $1::oid and a.attnum = b.attnum
  join pg_type t on t.oid = b.oid
  join pg_namespace s on s.oid = t.typnamespace
 where b.under = 0 and s.nspname <> 'pg_catalog' and $2::text !~* '\moperator\s*\('
   and exists (select from pg_operator o join pg_namespace n on n.oid = o.oprnamespace
                where b.oid in (o.oprleft, o.oprright) and n.nspname <> 'pg_catalog')
 order by a.attnum;
