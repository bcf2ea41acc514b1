-- The newest migration that this database has.
-- -> version int
select coalesce(max(version), 0) from outbox.schema_version;
