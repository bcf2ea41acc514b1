-- How many delivery locks of a queue are held. pg_locks shows the halves of an advisory lock as unsigned numbers.
-- $1 lock class integer, $2 bigint: only the lock with this second half; or null
-- -> count bigint
select pg_catalog.count(*)
  from pg_catalog.pg_locks l
 where l.locktype = 'advisory' and l.objsubid = 2 and l.granted
   and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
   and l.classid::bigint = ($1::bigint & 4294967295)
   and ($2::bigint is null or l.objid::bigint = ($2::bigint & 4294967295));
