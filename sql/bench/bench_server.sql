-- What the numbers of a bench depend on, and whether it may run here at all.
-- -> version text, fsync text, synchronous_commit text, shared_buffers text
--    publication text: one that takes every table of the database, or null
--    read_only boolean: a standby, or a read-only session
select pg_catalog.current_setting('server_version'),
       pg_catalog.current_setting('fsync'),
       pg_catalog.current_setting('synchronous_commit'),
       pg_catalog.current_setting('shared_buffers'),
       (select pg_catalog.min(p.pubname::text) from pg_publication p where p.puballtables),
       pg_catalog.pg_is_in_recovery() or pg_catalog.current_setting('transaction_read_only')::boolean
