-- The end of a claim, or of what has only freed locks. A portal keeps the snapshot it was run with until the next statement
-- takes its place or the transaction ends, and a claim's transaction goes on while its events are delivered: without this,
-- the snapshot of the statement before would hold back vacuum for all that time. A utility statement has none of its own.
set local courier.claim = ''
