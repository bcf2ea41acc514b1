-- Is there an index that finds what becomes due?
-- $1 table oid, $2 attnum of not_before int
-- -> found boolean
select exists (select from pg_catalog.pg_index i
                 join pg_catalog.pg_class c on c.oid = i.indexrelid
                 join pg_catalog.pg_am m on m.oid = c.relam
                 join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]
                where i.indrelid = $1::oid and i.indisvalid and m.amname = 'btree' and a.attnum = $2::int
                  and (i.indpred is null or pg_catalog.pg_get_expr(i.indpred, i.indrelid) = pg_catalog.format('(%I IS NOT NULL)', a.attname)));
