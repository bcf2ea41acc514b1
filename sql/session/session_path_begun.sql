-- session_path.sql for a transaction that has just begun. As a utility statement it has no snapshot, which the transaction
-- would keep until its next statement.
set local search_path = pg_catalog, pg_temp
