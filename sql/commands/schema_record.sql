-- Notes a migration as applied, in its own transaction.
-- $1 version int, $2 name text
insert into outbox.schema_version (version, name) values ($1, $2);
