-- Forgets the queue's oldest dead letters, a bounded number of them; one relay at a time. Class is FNV-1a of
-- "pgcourier:purge".
--
-- :needed    true of a letter d that something waits for: it is kept, as without it that would be taken for done
--
-- $1 text    queue
-- $2 bigint  microseconds that they are kept
-- $3 bigint  how many at most
-- One row: purged bigint
with turn as materialized (
    select pg_catalog.pg_try_advisory_xact_lock(1180025550, pg_catalog.hashtext($1::text)) as mine
), old as materialized (
    select d.dead_id from outbox.dead d
    where (select t.mine from turn t)
      and d.queue = $1::text and d.died_at < pg_catalog.statement_timestamp() - $2::bigint * interval '1 microsecond'
      and not (:needed)
    order by d.died_at limit $3::bigint
), purged as (
    delete from outbox.dead d using old o where d.dead_id = o.dead_id returning 1
)
select pg_catalog.count(*) as purged from purged;
