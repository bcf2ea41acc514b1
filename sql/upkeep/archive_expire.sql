-- Says how long this queue keeps its archive, and takes one step of removing what no queue keeps.
-- $1 text    queue
-- $2 bigint  microseconds; null: for ever
-- One row: removed text, null: nothing; again bigint, microseconds until the next step, null: none is left for now
select e.removed, (extract(epoch from e.again) * 1000000)::bigint as again
from outbox.archive_expire($1::text, $2::bigint * interval '1 microsecond', true) e;
