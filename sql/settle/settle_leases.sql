-- Fails unless each of these leases is still ours, and locks their entries: a settlement of what is leased begins with it.
--
-- While a term lasts nobody takes the key over. When it is over, whoever has the key's lock may be delivering the event,
-- so that lock is needed, too. The row lock is for who was quicker: an entry that has another token by then is not found.
--
-- :state :lock_hash :parked_key   as in lock_ids.sql
-- $1 text[]    tokens
-- $2 integer   the first half of the advisory lock
-- No rows.
select pg_catalog.concat('the lease ', t.token, ' is over')::bigint as ended_lease
from pg_catalog.unnest($1::text[]::uuid[]) as t (token)
left join lateral (
    select true as ours
    from :state.parked p
    cross join lateral (select case when not p.keyless then :parked_key end as key,
                               case when p.keyless then p.event_id end as keyless) as k
    where p.token between t.token and t.token
      and (coalesce(p.resume_at, p.next_at) > pg_catalog.clock_timestamp()
           or pg_catalog.pg_try_advisory_xact_lock($2::integer, :lock_hash))
    order by p.token offset 0
    for update of p
) as held on true
where held.ours is null
