-- What the server brings to every queue.
-- -> lock_slots bigint, locks_per_transaction int, synchronous_commit text, fsync text, schema_version_table boolean
select pg_catalog.current_setting('max_locks_per_transaction')::bigint
           * (pg_catalog.current_setting('max_connections')::bigint + pg_catalog.current_setting('max_prepared_transactions')::bigint),
       pg_catalog.current_setting('max_locks_per_transaction')::int,
       pg_catalog.current_setting('synchronous_commit'),
       pg_catalog.current_setting('fsync'),
       exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
                where n.nspname = 'outbox' and c.relname = 'schema_version');
