-- Is it a time at which the queue may claim? From the first to before the second, on the clock of a zone; over midnight when
-- the second is the smaller one.
-- $1 text   HH:MM-HH:MM, the latter up to 24:00
-- $2 text   zone
-- One row: open bigint, 1 or 0
select case when here.opens < here.closes then here.clock >= here.opens and here.clock < here.closes
            else here.clock >= here.opens or here.clock < here.closes end::int::bigint as open
from (select (pg_catalog.statement_timestamp() at time zone $2::text)::time as clock,
             pg_catalog.split_part($1::text, '-', 1)::time as opens, pg_catalog.split_part($1::text, '-', 2)::time as closes) as here;
