-- Which indexes can serve claim and settle: valid, whole, btree. An expression column has number 0 and fits nothing.
-- $1 table oid, $2 attnum of id int, $3 attnum of key int (-1: no key), $4 attnum of priority int (-1: none)
-- -> key_id boolean (in the order of both, or backwards), key boolean, id boolean (unique, id alone),
--    id_leads boolean (unique, starts with id), priority boolean (priority desc, id; or backwards)
select coalesce(pg_catalog.bool_or(i.indkey[0] = $3::int and i.indkey[1] = $2::int
                                   and i.indoption[0] = i.indoption[1] and i.indoption[0] in (0, 3)), false),
       coalesce(pg_catalog.bool_or(i.indkey[0] = $3::int), false),
       coalesce(pg_catalog.bool_or(i.indisunique and i.indimmediate and i.indnkeyatts = 1 and i.indkey[0] = $2::int), false),
       coalesce(pg_catalog.bool_or(i.indisunique and i.indimmediate and i.indkey[0] = $2::int), false),
       coalesce(pg_catalog.bool_or(i.indkey[0] = $4::int and i.indkey[1] = $2::int
                                   and (i.indoption[0] = 3 and i.indoption[1] = 0 or i.indoption[0] = 0 and i.indoption[1] = 3)), false)
  from pg_index i
  join pg_class c on c.oid = i.indexrelid
  join pg_am m on m.oid = c.relam
 where i.indrelid = $1::oid
   and i.indisvalid
   and i.indpred is null
   and m.amname = 'btree';
