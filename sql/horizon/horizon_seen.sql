-- Like horizon_drawn.sql for a table whose ids no readable sequence feeds: the greatest visible id.
--
-- :table :id   the queue's table (as e) and its order column
-- One row: first bigint, drawn bigint; null: the table is empty
select -9223372036854775808 as first, max(:id) as drawn from :table e
