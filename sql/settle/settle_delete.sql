-- Takes delivered events out of the table.
--
-- :table :id   the queue's table (as e) and its order column
-- $1 bigint[]  ids
-- No columns; the row count is the number of events that were still there.
delete from :table e where :id = any ($1::bigint[])
