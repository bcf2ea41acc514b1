-- The terms of these leases begin anew, by the clock of the database, and so does the question whose backend they end with.
-- Which are still ours: as in settle_leases.sql.
--
-- :state :lock_hash :parked_key   as in lock_ids.sql
-- $1 text[]    tokens
-- $2 integer   the first half of the advisory lock
-- $3 bigint    the term, microseconds
-- $4 integer   the backend whose end ends the leases, too; 0: there is none such
--
-- An entry that somebody has locked is left out: a session that has paused one key and does not commit must not cost all
-- others their terms. So is one that was changed while this began: its place is that of its new version, which is not seen
-- here.
--
-- One row for each that was not renewed:
-- token text
-- held boolean   its term still runs, and it is to be asked for again; false: somebody else has it, or had, and it is lost
with owner as materialized (
    select a.pid, a.backend_start from pg_catalog.pg_stat_get_activity($4::integer) a where a.backend_start is not null
), free as materialized (
    select p.place
    from pg_catalog.unnest($1::text[]::uuid[]) as m (token)
    cross join lateral (select w.ctid as place from :state.parked w
                        where w.token between m.token and m.token order by w.token offset 0
                        for update skip locked) as p
), renewed as (
    update :state.parked p
    set next_at = case when p.resume_at is null then pg_catalog.clock_timestamp() + $3::bigint * interval '1 microsecond' else p.next_at end,
        resume_at = case when p.resume_at is not null then pg_catalog.clock_timestamp() + $3::bigint * interval '1 microsecond' end,
        lease = $3::bigint * interval '1 microsecond',
        backend_pid = (select o.pid from owner o), backend_start = (select o.backend_start from owner o)
    from free f
    where p.ctid = f.place
      and (coalesce(p.resume_at, p.next_at) > pg_catalog.clock_timestamp()
           or (select pg_catalog.pg_try_advisory_xact_lock($2::integer, :lock_hash)
               from (select case when not p.keyless then :parked_key end as key, case when p.keyless then p.event_id end as keyless) as k))
    returning p.token
)
select t.token::text as token,
       exists (select from :state.parked p
               where p.token between t.token and t.token
                 and coalesce(p.resume_at, p.next_at) > pg_catalog.clock_timestamp()) as held
from pg_catalog.unnest($1::text[]::uuid[]) as t (token)
where not exists (select from renewed r where r.token = t.token)
