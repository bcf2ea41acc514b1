-- Makes this session the owner of a bench's schema, until it ends in whatever way. The class is FNV-1a of "pgcourier:bench".
-- $1 text    the schema's name
-- -> mine boolean: false while another session owns it
--    there boolean: there is such a schema
select pg_catalog.pg_try_advisory_lock(-1219631001, pg_catalog.hashtext($1::text)),
       pg_catalog.to_regnamespace($1::text) is not null
