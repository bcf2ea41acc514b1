-- Takes a key from the relays until the transaction ends. keep_id tells the ordering trigger to leave ids alone.
-- :class, :hash (int4, over $1); $1 key or event id text, $2 bigint: milliseconds to wait for this lock at most, and for any that
-- is needed later; 0: this one is only tried, and the others are waited for as long as a settlement of leases may have them
-- What is no value of the key's type has no hash, and nobody could have it.
-- -> (two columns without meaning), got boolean: false, somebody else has it
select pg_catalog.set_config('lock_timeout', greatest($2::bigint, 10)::text, true),
       pg_catalog.set_config('outbox.keep_id', 'on', true),
       case when $2::bigint = 0 then coalesce(pg_catalog.pg_try_advisory_xact_lock(:class, :hash), true)
            else coalesce(pg_catalog.pg_advisory_xact_lock(:class, :hash)::text, '') is not null end;
