-- Where one bounded stretch of ids begins: its least event that is not covered. One is covered whose key has an entry that
-- points at it or at an event before it, because then the key is read from there, wherever the floor is; and an event without a
-- key by an entry of its own. Whoever moves an entry sees what it covers, and leaves that covered, unless he has looked
-- before it was visible: so nothing is taken for covered while its key's lock is held, its entry is leased, or nobody knows
-- who was at work: see horizon_movers.sql, and docs/guarantees.md for the argument.
--
-- What has been left behind (ordering/left_behind.h) is passed, too: its key is read from there. What is looked for here is how
-- far that still holds. A key that has nothing more at or below $1 and $2, or nothing that is not covered, need not be
-- remembered; but what lies between $2 and $1, which was passed, may have come after somebody has looked.
--
-- :table :state :id :key :lock_hash :parked_key   as in lock_ids.sql, and parked is asked as there
-- $1 $2 bigint  the stretch, all of it settled
-- $3 text       queue
-- $4 bigint     rows to look at
-- $5 text[]     keys of what was left behind; null: an event without a key
-- $6 bigint[]   their least ids
-- One row, or one for each of $5, in its order:
--          floor bigint, null: there is none in the rows looked at
--          covered bigint, 1: that of an event that is covered, for all that can be seen without horizon_movers.sql
--          passed bigint, null, or: all rows looked at are covered or left behind, the last one was this, and there may be more
--          key text, that of the floor's event
--          place bigint, in $5, from 1; null: $5 is empty
--          least bigint, the least id of that key now; null: it need not be remembered
with movers as materialized (
    select nullif(pg_catalog.current_setting('courier.movers', true), '')::bigint[] as hashes
), behind as materialized (
    select p.place, p.key as name, e.id, e.key, e.keyless
    from rows from (pg_catalog.unnest($5::text[]), pg_catalog.unnest($6::bigint[])) with ordinality as p (key, event_id, place)
    left join lateral (
        (select :id as id, :key as key, null::bigint as keyless from :table e
         where (:key, :id) >= (:parked_key, p.event_id) and (:key, :id) <= (:parked_key, greatest($1::bigint, $2::bigint))
         order by :key, :id limit 1)
        union all
        (select :id, :key, :id from :table e
         where :id between p.event_id and p.event_id and (:key) is null and p.key is null
         order by :id limit 1)) as e on true
), seen as materialized (
    select :id as id, :key as key, case when (:key) is null then :id end as keyless from :table e
    where :id between $1::bigint and $2::bigint
    order by :id limit $4::bigint
), looked_at as materialized (
    -- Those of the stretch, and those that were left behind.
    select k.*,
           case when k.keyless is null then exists (
               select from :state.parked p
               where p.queue = $3::text and not p.keyless and p.event_id <= k.id and p.token is null
                 and p.key between (k.key::text collate "default") and (k.key::text collate "default")
               order by p.key offset 0)
           else exists (
               select from :state.parked p
               where p.queue = $3::text and p.keyless and p.event_id between k.keyless and k.keyless
               order by p.event_id offset 0) end as covered
    from (select s.id, s.key, s.keyless, null::bigint as place from seen s
          where case when s.keyless is not null then not s.keyless = any (select b.keyless from behind b where b.keyless is not null)
                when s.key::text = any (select b.name from behind b where b.name is not null)
                then not exists (select from behind b where b.name = s.key::text and b.id <= s.id)
                else true end
          union all
          select b.id, b.key, b.keyless, b.place from behind b where b.id is not null) as k
), bare as materialized (
    select k.id, k.key, k.covered, k.place from looked_at k
    where not k.covered
       or k.keyless is null and ((select m.hashes is null from movers m)
                              or (:lock_hash)::bigint & 4294967295 = any (select pg_catalog.unnest(m.hashes) from movers m)
                              or (k.place is not null and $1::bigint > $2::bigint and exists (
                                  select from :table e
                                  where (:key, :id) > (k.key, $2::bigint) and (:key, :id) <= (k.key, $1::bigint)
                                  order by :key, :id offset 0)))
), first as (
    select b.id, b.key, b.covered from bare b where b.place is null order by b.id limit 1
)
select (select f.id::bigint from first f) as floor,
       (select f.covered::integer::bigint from first f) as covered,
       case when not exists (select from first) then (
           select pg_catalog.max(s.id)::bigint from seen s having pg_catalog.count(*) >= $4::bigint) end as passed,
       (select f.key::text from first f) as key,
       b.place, (select r.id::bigint from bare r where r.place = b.place) as least
from (select) as one
left join behind b on true
order by b.place
