-- Have two tables rows in common? A table has those of its partitions and of its children by inheritance, too.
-- $1, $2 table oids
-- -> one row when they have, else none (a column without meaning)
with recursive member (root, oid) as (
    select t.oid, t.oid from pg_catalog.unnest(array[$1::oid, $2::oid]) t (oid)
    union
    select m.root, h.inhrelid from member m join pg_inherits h on h.inhparent = m.oid
)
select 1
  from member a
  join member b on b.oid = a.oid
 where a.root = $1::oid
   and b.root = $2::oid
 limit 1;
