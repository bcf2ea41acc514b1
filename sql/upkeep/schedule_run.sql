-- Inserts the events of the queue's schedules that are due; several relays may do it at once, and each run is inserted once.
-- $1 text    queue
-- One row: inserted bigint; failed text, the last one that could not be inserted and why, or null; more bigint, 1 when some
-- are still due
select r.inserted, r.failed, r.more::int::bigint as more from outbox.schedule_run($1::text) r;
