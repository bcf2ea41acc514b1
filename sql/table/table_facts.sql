-- What else about a table can break a guarantee.
-- $1 table oid, $2 attnum of id int
-- -> unlogged boolean, partitioned boolean, id_not_null boolean,
--    split_sequence text: a partition whose id has a default of its own that differs from the table's, or null
--    inherited boolean: it has children by inheritance, whose ids its index does not see
--    hidden boolean: row-level security applies to us and no policy shows us every row
--    user_sql text (quoted)
select c.relpersistence = 'u'
           or exists (select from pg_catalog.pg_partition_tree(c.oid) p join pg_class pc on pc.oid = p.relid
                       where pc.relpersistence = 'u'),
       c.relkind = 'p',
       a.attnotnull,
       (select pg_catalog.min(pg_catalog.format('%I.%I', pn.nspname, pc.relname))
          from pg_catalog.pg_partition_tree(c.oid) p
          join pg_class pc on pc.oid = p.relid
          join pg_namespace pn on pn.oid = pc.relnamespace
          join pg_attribute pa on pa.attrelid = p.relid and pa.attname = a.attname
          left join pg_attrdef px on px.adrelid = p.relid and px.adnum = pa.attnum
         where p.relid <> c.oid
           and p.isleaf
           and a.attidentity = ''
           and pg_catalog.pg_get_expr(px.adbin, px.adrelid)
               is distinct from (select pg_catalog.pg_get_expr(x.adbin, x.adrelid) from pg_attrdef x
                                  where x.adrelid = c.oid and x.adnum = a.attnum)),
       c.relkind = 'r' and exists (select from pg_inherits h where h.inhparent = c.oid),
       pg_catalog.row_security_active(c.oid)
           and (exists (select from pg_policy o where o.polrelid = c.oid and not o.polpermissive)
                or not exists (select from pg_policy o
                                where o.polrelid = c.oid
                                  and o.polpermissive
                                  and o.polcmd = '*'
                                  and pg_catalog.pg_get_expr(o.polqual, o.polrelid) = 'true'
                                  and exists (select from pg_catalog.unnest(o.polroles) r
                                               where r = 0 or pg_catalog.pg_has_role(r, 'MEMBER')))),
       pg_catalog.format('"%s"', pg_catalog.replace(current_user, '"', '""'))
  from pg_class c
  join pg_attribute a on a.attrelid = c.oid and a.attnum = $2::int
 where c.oid = $1::oid;
