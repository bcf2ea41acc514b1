-- The session that owns a bench's schema ends with its client, also in the middle of a fill. Refused by servers whose system
-- does not tell of a client that is gone.
select pg_catalog.set_config('client_connection_check_interval', '1s', false)
