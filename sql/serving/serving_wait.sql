-- Waits until nobody shows any more that he serves a table by a class of locks (serving_hold.sql): the sessions of a relay that has
-- just ended may still be there. As long as lock_timeout lets it, and until then nobody new shows it.
-- $1 text   the table's oid
-- $2 text   class of its locks
-- -> (a column without meaning)
select pg_catalog.pg_advisory_xact_lock(($1::bigint << 32) | ($2::bigint & 4294967295))
