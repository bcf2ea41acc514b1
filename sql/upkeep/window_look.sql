-- Is it a time at which the queue may claim? From the first to before the second, on the clock of a zone; over midnight when
-- the second is the smaller one.
-- $1 text   from, HH:MM
-- $2 text   until, HH:MM, or 24:00
-- $3 text   zone
-- One row: open bigint, 1 or 0
select case when $1::text::time < $2::text::time then here.clock >= $1::text::time and here.clock < $2::text::time
            else here.clock >= $1::text::time or here.clock < $2::text::time end::int::bigint as open
from (select (pg_catalog.statement_timestamp() at time zone $3::text)::time as clock) as here;
