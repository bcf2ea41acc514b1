-- Is there anything left to deliver? Events of closed keys do not count: somebody has to open them first.
--
-- :table :where :state :key :id   as in lock_ids.sql, and parked is asked as there
-- :behind_entry   as in settle_park.sql
-- :in_order   without a filter: in the order of ids, which is that of the rows. With one there may be an index that finds what
--             it lets through, and what it does not may be most of the table.
-- $1 text     queue
-- $2 bigint[] ids that may have events, in ascending ranges: from each of these
-- $3 bigint[] to this. All others have none, but what their key's entry covers (horizon_floor.sql); what is dead there is not walked over
-- :in_range   those of r; with a filter true, so that its index can serve
-- No row when nothing is left, else one.
(select 1 as waiting
from rows from (pg_catalog.unnest($2::bigint[]), pg_catalog.unnest($3::bigint[])) as r (lo, hi)
cross join lateral (
    select from :table e
    where (:in_range) and (:where)
      and case when (:key)::text is null then not exists (
          select from :state.parked p
          where p.queue = $1::text and p.keyless and p.next_at = 'infinity' and p.event_id between :id and :id
          order by p.event_id offset 0)
      else not exists (
          select from :state.parked p
          where p.queue = $1::text and not p.keyless and p.next_at = 'infinity'
            and p.key between ((:key)::text collate "default") and ((:key)::text collate "default")
          order by p.key offset 0) end
    :in_order
    limit 1) as left_over
limit 1)
union all
(select 1
 from :state.parked p
 where p.queue = $1::text and p.event_id < ($2::bigint[])[pg_catalog.cardinality($2::bigint[])] and p.next_at < 'infinity'
   and case when p.keyless then exists (select from :table e where :id between p.event_id and p.event_id and (:where) order by :id offset 0)
       else exists (select from :table e where :behind_entry and (:where) order by :key, :id offset 0) end
 limit 1)
limit 1
