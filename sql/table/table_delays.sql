-- Is there an index that finds what becomes due?
-- $1 table oid, $2 attnum of not_before int
-- -> found boolean
select exists (select from pg_catalog.pg_index i
                where i.indrelid = $1::oid and i.indisvalid and i.indkey[0] = $2::int
                  and (i.indpred is null or pg_catalog.pg_get_expr(i.indpred, i.indrelid) ~ 'IS NOT NULL'));
