-- Whether the queue's condition can be told of these rows, and only of them: it fails when that of one cannot. PostgreSQL is
-- free in the order in which it asks for several conditions, but not for the parts of a CASE.
--
-- :table :where :id   as in lock_ids.sql
-- $1 bigint[]   ids
-- -> one row without meaning
select pg_catalog.count(*) as rows
from pg_catalog.unnest($1::bigint[]) as i (id)
cross join lateral (
    select from :table e
    where :id between i.id and i.id and case when :id between i.id and i.id then (:where) else false end
    order by :id offset 0) as o
