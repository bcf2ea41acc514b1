-- The sequence that feeds a column: by its default, owned or not, or as its identity.
-- $1 table oid, $2 attnum int
-- -> name_sql text (quoted), readable boolean, cache bigint, increment bigint, cycles boolean
select pg_catalog.format('"%s"."%s"', pg_catalog.replace(n.nspname, '"', '""'), pg_catalog.replace(c.relname, '"', '""')),
       pg_catalog.has_schema_privilege(n.oid, 'USAGE') and pg_catalog.has_sequence_privilege(c.oid, 'SELECT'),
       s.seqcache,
       s.seqincrement,
       s.seqcycle
  from pg_sequence s
  join pg_class c on c.oid = s.seqrelid
  join pg_namespace n on n.oid = c.relnamespace
 where s.seqrelid in (
       select d.refobjid
         from pg_depend d
         join pg_attrdef x on x.oid = d.objid
        where d.classid = 'pg_attrdef'::regclass
          and d.refclassid = 'pg_class'::regclass
          and x.adrelid = $1::oid
          and x.adnum = $2::int
       union
       select d.objid
         from pg_depend d
        where d.classid = 'pg_class'::regclass
          and d.refclassid = 'pg_class'::regclass
          and d.deptype = 'i'
          and d.refobjid = $1::oid
          and d.refobjsubid = $2::int)
 limit 1;
