-- Takes delivered events out of the table.
--
-- :gone         the rows, which it takes out: settle_gone.sql
-- $1 bigint[]   ids
-- $2 tid[]      places, of any of them
-- One row: gone bigint, the number of events that were still there; missing, without meaning.
:gone
select g.n as gone, g.missing from tally g
