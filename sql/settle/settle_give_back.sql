-- Leases are given back untouched: no attempt is counted, and the key may be claimed again at once. A paused key stays so.
-- The failures are those of the event that was leased: one that was put back in front of it has none.
--
-- At once, though a relay that gives back because a destination is away wants to leave it alone for a while (release_us in
-- relay/queue/batch.h): it keeps these keys out of its own claims by name (keep_away() in relay/settle/settle.c), as keys are whose
-- locks it frees. To others the destination may be there, and when this relay ends nobody has to wait for what it thought.
--
-- :state     as in lock_ids.sql
-- $1 text[]    tokens; settle_leases.sql has locked their entries
update :state.parked p
set next_at = case when p.resume_at is null then pg_catalog.clock_timestamp() else p.next_at end,
    resume_at = case when p.resume_at is not null then pg_catalog.clock_timestamp() end,
    attempts = case when p.event_id = p.taken_id then p.attempts else 0 end,
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
