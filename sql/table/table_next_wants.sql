-- What a table wants of every new row that the queue before it does not give: such rows could not be put there.
-- :next_names   its columns that are given, as literals
-- $1 table oid
-- -> text, remedy text, denied boolean: a right is missing
select pg_catalog.format('column %s of %s must not be null, has no default, and nothing of the queue before it goes there', q.name_sql,
                         $1::oid::regclass),
       pg_catalog.format('alter table %s alter column %s set default ...;', $1::oid::regclass, q.name_sql), false
  from pg_attribute a
 cross join lateral (select pg_catalog.format('"%s"', pg_catalog.replace(a.attname, '"', '""')) as name_sql) q
 where a.attrelid = $1::oid and a.attnum > 0 and not a.attisdropped and a.attnotnull and not a.atthasdef and a.attidentity = ''
   and q.name_sql <> all (array[:next_names]::text[])
union all
select pg_catalog.format('%s has no USAGE on sequence %s, from which %s draws', current_user, s.oid::regclass, $1::oid::regclass),
       pg_catalog.format('grant usage on sequence %s to %I;', s.oid::regclass, current_user), true
  from pg_attrdef d
  join pg_depend n on n.classid = 'pg_attrdef'::regclass and n.objid = d.oid and n.refclassid = 'pg_class'::regclass
  join pg_class s on s.oid = n.refobjid
 where d.adrelid = $1::oid and case when s.relkind = 'S' then not pg_catalog.has_sequence_privilege(s.oid, 'USAGE') end
   and not exists (select from pg_attribute a where a.attrelid = $1::oid and a.attnum = d.adnum
                                                and pg_catalog.format('"%s"', pg_catalog.replace(a.attname, '"', '""')) = any (array[:next_names]::text[]));
