-- The first words on a new connection: who are we talking to?
-- One row of text: backend pid, true when nothing can be written here (a standby, or read-only), server encoding
select pg_catalog.pg_backend_pid()::pg_catalog.text,
       (pg_catalog.pg_is_in_recovery() or pg_catalog.current_setting('transaction_read_only')::boolean)::pg_catalog.text,
       pg_catalog.current_setting('server_encoding')
