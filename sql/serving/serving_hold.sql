-- Announces in pg_locks that this session's relay serves a table, and by which class of locks: by a lock of one
-- number, the table's oid and the class. Those of keys have two numbers. Then it looks for others that serve rows of that table
-- by another class: a table has the rows of its partitions and of its children, too. If there is one, ours is let go.
--
-- Needs no right, and takes no part in what a pooler shares: see note_serving() in sql/schema/008_lifecycle.sql.
--
-- $1 text    the table's oid
-- $2 text    class of its locks
-- One row: refusal text, null: there is none; tbl text, class text: what the other serves, and by what;
-- said boolean: false; (a column without meaning)
with recursive held (is_announced) as (
    select pg_catalog.pg_advisory_lock_shared(($1::bigint << 32) | ($2::bigint & 4294967295))::text offset 0
), others as materialized (
    select l.pid, l.classid as tbl, l.objid::bigint - case when l.objid::bigint > 2147483647 then 4294967296 else 0 end as class
      from held h
     cross join lateral (
         select * from pg_catalog.pg_locks s
          where h.is_announced is not null and s.locktype = 'advisory' and s.objsubid = 1 and s.mode = 'ShareLock' and s.granted
            and s.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
          offset 0) l
     where l.objid::bigint <> $2::bigint & 4294967295
), member (root, oid) as (
    select t.oid, t.oid from (select o.tbl as oid from others o union select $1::bigint::oid from others) t
    union
    select m.root, i.inhrelid from member m join pg_catalog.pg_inherits i on i.inhparent = m.oid
), first as (
    select o.tbl, o.class,
           pg_catalog.concat(coalesce(nullif(a.application_name, ''), 'a session'), case when a.client_addr is not null then ' at ' end,
                             pg_catalog.host(a.client_addr), ', pid ', o.pid::text, case when a.usename is not null then ' of ' end, a.usename) as holder
      from others o
      left join pg_catalog.pg_stat_activity a on a.pid = o.pid
     where exists (select from member m join member n on n.oid = m.oid where m.root = o.tbl and n.root = $1::bigint::oid)
     order by o.tbl <> $1::bigint::oid, o.pid
     limit 1
)
select f.holder as refusal, f.tbl::text, f.class::text, false as said,
       case when f.holder is not null then pg_catalog.pg_advisory_unlock_shared(($1::bigint << 32) | ($2::bigint & 4294967295)) end
  from (select) as one
  left join first f on true
