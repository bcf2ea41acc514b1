-- The newest migration that this database has.
-- -> version int
select coalesce(pg_catalog.max(version), 0) from outbox.schema_version;
