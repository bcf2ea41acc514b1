-- Like horizon_drawn.sql for a table whose ids no readable sequence feeds: the greatest visible id.
--
-- :table :id   the queue's table (as e) and its order column
-- One row: first bigint (smaller ids are not expected, and looked at all the same); drawn bigint, null: the table is empty
select 1::bigint as first, pg_catalog.max(:id) as drawn from :table e
