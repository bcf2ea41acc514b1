-- One relay after the other begins to serve, so that of two that start together one finds the other. Until the transaction ends.
-- -> (a column without meaning)
select pg_catalog.pg_advisory_xact_lock(-1432238139, 0) -- FNV-1a of "pgcourier:serving"
