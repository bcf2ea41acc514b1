-- A session that a pooler shares gets no settings but this one, and only where bytes would be refused without it.
--
-- $1 text   client_encoding
select pg_catalog.set_config('client_encoding', $1, false)
