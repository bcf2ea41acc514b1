-- The first events of leased keys are settled, and the leases go on: what runs out from here on is that of the next event.
-- An entry that points below what was taken keeps doing so: an event was put back meanwhile, or has become due.
--
-- :state      as in lock_ids.sql
-- $1 text[]    tokens; settle_leases.sql has locked their entries
-- $2 bigint[] the next events
update :state.parked p
set event_id = case when p.event_id = p.taken_id then n.id else p.event_id end, taken_id = n.id, attempts = 0, last_error = '',
    first_failed_at = pg_catalog.clock_timestamp(), updated_at = pg_catalog.clock_timestamp()
from (
    select w.place, m.id
    from rows from (pg_catalog.unnest($1::text[]::uuid[]), pg_catalog.unnest($2::bigint[])) as m (token, id)
    cross join lateral (
        select p.ctid as place from :state.parked p
        where p.token between m.token and m.token
        order by p.token offset 0) as w
) as n
where p.ctid = n.place
