-- The first words on a new connection: who are we talking to?
-- One row of text: backend pid, true when nothing can be written here (a standby, or read-only), server encoding, isolation
-- level of transactions that do not say theirs
select pg_catalog.pg_backend_pid()::pg_catalog.text,
       (pg_catalog.pg_is_in_recovery() or pg_catalog.current_setting('transaction_read_only')::boolean)::pg_catalog.text,
       pg_catalog.current_setting('server_encoding'), pg_catalog.current_setting('default_transaction_isolation')
