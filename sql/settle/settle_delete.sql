-- Takes delivered events out of the table.
--
-- :deleted         the rows, which it takes out: settle_deleted.sql
-- $1 bigint[]   ids
-- $2 tid[]      places, of any of them
-- One row: deleted bigint, the number of events that were still there; missing, without meaning.
:deleted
select g.n as deleted, g.missing from tally g
