-- Moves delivered events from the table to the archive: what was still there, exactly once.
--
-- :deleted        the rows, with archive_key, created_at and original: deleted_by_place.sql or deleted_by_id.sql
-- :state       as in lock_ids.sql
-- $1 bigint[]  ids
-- $2 tid[]     their places, or none
-- $3 text      queue
-- One row, as in settle_delete.sql.
:deleted, archived as (
    insert into :state.archive (queue, event_id, key, created_at, original)
    select $3::text, g.id, g.archive_key, g.created_at, g.original from deleted g
)
select g.n as deleted, g.missing from tally g
