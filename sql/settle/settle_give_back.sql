-- Leases are given back untouched: no attempt is counted, and the key may be claimed again at once. A paused key stays so.
--
-- :state     as in per_key_lock.sql
-- $1 text[]    tokens; settle_leases.sql has locked their entries
update :state.parked p
set next_at = case when p.resume_at is null then pg_catalog.clock_timestamp() else p.next_at end,
    resume_at = case when p.resume_at is not null then pg_catalog.clock_timestamp() end,
    updated_at = pg_catalog.clock_timestamp(), token = null
from (
    select w.place
    from pg_catalog.unnest($1::text[]::uuid[]) as m (token)
    cross join lateral (
        select p.ctid as place from :state.parked p
        where p.token between m.token and m.token
        order by p.token offset 0) as w
) as n
where p.ctid = n.place
