-- Takes the keys of dead letters from the relays until the transaction ends, and names the letters of those that somebody else
-- has. keep_id tells the ordering trigger to leave ids alone. What is no value of the key's type has no hash, and nobody could
-- have it.
-- :name (of a letter d, what the lock is for), :class, :hash_of_name (int4, over n.name); $1 bigint[] dead_ids
-- -> dead_id bigint
with settings as materialized (
    select pg_catalog.set_config('lock_timeout', '10', true), pg_catalog.set_config('outbox.keep_id', 'on', true)
), named as materialized (
    select distinct :name as name from outbox.dead d where d.dead_id = any ($1::bigint[])
), tried as materialized (
    select n.name, coalesce(pg_catalog.pg_try_advisory_xact_lock(:class, :hash_of_name), true) as got from settings cross join named n
)
select d.dead_id from outbox.dead d join tried t on t.name = :name where d.dead_id = any ($1::bigint[]) and not t.got;
