-- One migration at a time, and none that waits for ever, neither for this lock nor for a table; both until the
-- transaction ends. The lock's class is FNV-1a of "pgcourier:schema".
-- -> (two columns without meaning)
select pg_catalog.set_config('lock_timeout', '5s', true), pg_catalog.pg_advisory_xact_lock(1977447428, 0);
