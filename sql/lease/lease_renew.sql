-- The terms of these leases begin anew, by the clock of the database, and so does the question whose backend they end with.
-- Which are still ours: as in settle_leases.sql.
--
-- :state :lock_hash :parked_key   as in per_key_lock.sql
-- $1 text[]    tokens
-- $2 integer   the first half of the advisory lock
-- $3 bigint    the term, microseconds
-- $4 integer   the backend whose end ends the leases, too; 0: there is none such
--
-- token text   one row for each that somebody else has, or had: it is lost
with owner as materialized (
    select a.pid, a.backend_start from pg_catalog.pg_stat_get_activity($4::integer) a where a.backend_start is not null
), renewed as (
    -- Not by places that are found first: behind somebody who has just changed an entry they would be those of its last version.
    update :state.parked p
    set next_at = case when p.resume_at is null then pg_catalog.clock_timestamp() + $3::bigint * interval '1 microsecond' else p.next_at end,
        resume_at = case when p.resume_at is not null then pg_catalog.clock_timestamp() + $3::bigint * interval '1 microsecond' end,
        lease = $3::bigint * interval '1 microsecond',
        backend_pid = (select o.pid from owner o), backend_start = (select o.backend_start from owner o)
    from pg_catalog.unnest($1::text[]::uuid[]) as m (token)
    where p.token between m.token and m.token
      and (coalesce(p.resume_at, p.next_at) > pg_catalog.clock_timestamp()
           or (select pg_catalog.pg_try_advisory_xact_lock($2::integer, :lock_hash)
               from (select case when not p.keyless then :parked_key end as key, case when p.keyless then p.event_id end as solo) as k))
    returning p.token
)
select t.token::text as token
from pg_catalog.unnest($1::text[]::uuid[]) as t (token)
where not exists (select from renewed r where r.token = t.token)
