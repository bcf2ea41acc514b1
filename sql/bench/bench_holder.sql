-- Whose session owns a bench's schema: see bench_lock.sql. pg_locks shows the halves of an advisory lock as unsigned numbers.
-- $1 text    the schema's name
-- -> pid int: null when nobody's does any more
select pg_catalog.min(l.pid)
  from pg_catalog.pg_locks l
 where l.locktype = 'advisory' and l.objsubid = 2 and l.granted
   and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
   and l.classid::bigint = (-1219631001::bigint & 4294967295)
   and l.objid::bigint = (pg_catalog.hashtext($1::text)::bigint & 4294967295)
