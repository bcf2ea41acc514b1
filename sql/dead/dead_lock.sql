-- Takes a key from the relays until the transaction ends. keep_id tells the ordering trigger to leave ids alone.
-- :class, :hash (int4, over $1); $1 key or event id text
-- -> (three columns without meaning)
select pg_catalog.set_config('lock_timeout', '5s', true),
       pg_catalog.set_config('outbox.keep_id', 'on', true),
       pg_catalog.pg_advisory_xact_lock(:class, :hash);
