-- Takes delivered events out of the table.
--
-- :deleted         the rows, which it takes out: deleted_by_place.sql or deleted_by_id.sql
-- $1 bigint[]   ids
-- $2 tid[]      their places, or none
-- One row: deleted bigint, the number of events that were still there; missing, without meaning.
:deleted
select g.n as deleted, g.missing from tally g
