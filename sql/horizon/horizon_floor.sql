-- The smallest id in one bounded stretch of ids.
--
-- :table :id   the queue's table (as e) and its order column
-- $1 $2 bigint the stretch
-- One row: floor bigint; null: there is none
select (select :id from :table e where :id between $1::bigint and $2::bigint order by :id limit 1) as floor
