-- As unreadable_ids.sql, of one key.
--
-- :table :id                     as in lock_ids.sql
-- :key_all :key_all_order    as in settle_unpark.sql
-- $1 $2 bigint  ids from $1 to $2
-- $3 bigint     so many of them, the least
-- $4 text       the key
-- -> id bigint
select o.id from (select $4::text as name) as k
cross join lateral (
    select (:id)::bigint as id from :table e
    where :key_all and :id between $1::bigint and $2::bigint
    order by :key_all_order limit $3::bigint) as o
