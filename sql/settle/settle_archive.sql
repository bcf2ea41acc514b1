-- Moves delivered events from the table to the archive: what was still there, exactly once.
--
-- :table :id :key   the queue's table (as e), its order column and its key
-- $1 bigint[]  ids
-- $2 text      queue
-- No columns; the row count is the number of events that were still there.
with gone as (
    delete from :table e where :id = any ($1::bigint[])
    returning :id as id, (:key)::text as key, pg_catalog.row_to_json(e.*) as original
)
insert into outbox.archive (queue, event_id, key, original)
select $2::text, id, key, original from gone
