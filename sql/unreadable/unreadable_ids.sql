-- The ids of a stretch, to be tried by unreadable_where.sql or unreadable_read.sql. Nothing of the rows is looked at.
--
-- :table :id    as in lock_ids.sql
-- $1 $2 bigint  ids from $1 to $2
-- $3 bigint     so many of them, the least
-- -> id bigint
select (:id)::bigint as id from :table e
where :id between $1::bigint and $2::bigint
order by :id limit $3::bigint
