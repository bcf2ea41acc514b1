-- Is there an outbox schema that migrations know of?
-- -> exists boolean
select to_regclass('outbox.schema_version') is not null;
