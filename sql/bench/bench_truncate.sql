-- Empties the table. The relay that has drained it may not have ended all of its sessions yet: one that has asked the
-- sequence goes on to the table, so the sequence must not be wanted here, after the table.
-- :state   the schema of a bench
truncate :state.events
