-- The first half of a claim on an ordinary day, when nothing is left to look at but the newest ids: whatever is found there is
-- locked, and the names are left for the second half (fresh_read.sql), which must be a statement of its own, because its
-- snapshot has to be younger than the locks. lock_ids.sql is for all else, and says more. This plan has a dozen nodes,
-- because setting up a plan is most of what such a claim costs.
--
-- Keys that wait are left to the other statement: `due` says that a wait is over.
--
-- :table :where :state :id :key :parked_key :lock_hash   as in lock_ids.sql, and parked is asked as there
--
-- $1 bigint    ids greater than this, newest first
-- $2 bigint    rows to look at, which is how many keys may be locked
-- $3 text      queue
-- $4 integer   the first half of the advisory lock
--
-- One row:
-- seen_min, seen_max bigint       smallest and greatest id seen; null: none
-- missed_min, missed_max bigint   ids whose key was locked elsewhere; null: none
-- locked bigint                   locks taken
-- claim, keyless text             what was left for the second half
-- more bigint                     1: as many rows were seen as might be looked at
-- due bigint                      1: keys wait, and the time of one has come
select pg_catalog.min(l.low) as seen_min, pg_catalog.max(l.high) as seen_max,
       pg_catalog.min(l.low) filter (where not l.ok) as missed_min, pg_catalog.max(l.high) filter (where not l.ok) as missed_max,
       pg_catalog.count(*) filter (where l.ok) as locked,
       pg_catalog.set_config('courier.claim',
           coalesce(pg_catalog.array_agg(l.key) filter (where l.ok and l.keyless is null)::text, '{}'), true) as claim,
       pg_catalog.set_config('courier.keyless',
           coalesce(pg_catalog.array_agg(l.keyless) filter (where l.ok and l.keyless is not null)::text, '{}'), true) as keyless,
       (pg_catalog.sum(l.n) >= $2::bigint)::integer::bigint as more,
       (exists (select from :state.parked p
                where p.queue = $3::text and p.next_at <= pg_catalog.statement_timestamp()
                  and (p.keyless or (:parked_key) is not null)
                order by p.next_at offset 0))::integer::bigint as due
from (
    select k.*,
           case when case when k.keyless is null
                          then exists (
                              select from :state.parked p
                              where p.queue = $3::text and not p.keyless
                                and p.key between (k.key::text collate "default") and (k.key::text collate "default")
                              order by p.key offset 0)
                          else exists (
                              select from :state.parked p
                              where p.queue = $3::text and p.keyless and p.event_id between k.keyless and k.keyless
                              order by p.event_id offset 0) end
                then null else pg_catalog.pg_try_advisory_xact_lock($4::integer, :lock_hash) end as ok
    from (select s.key, case when s.key is null then s.id end as keyless,
                 pg_catalog.min(s.id) as low, pg_catalog.max(s.id) as high, pg_catalog.count(*) as n
          from (select :id as id, :key as key from :table e
                where :id > $1::bigint and (:where)
                order by :id desc limit $2::bigint) as s
          group by 1, 2 offset 0) as k
    offset 0) as l
