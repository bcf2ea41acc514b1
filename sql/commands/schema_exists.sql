-- Is there an outbox schema that migrations know of? Read from the tables: to_regclass() may answer from a cache that
-- has not yet heard of another migrate's commit.
-- -> exists boolean
select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
                where n.nspname = 'outbox' and c.relname = 'schema_version');
