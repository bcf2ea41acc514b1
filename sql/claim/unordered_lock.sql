-- The first half of a claim where no event waits for another: choose events, lock them, and leave their ids for the second
-- half (unordered_read.sql), whose snapshot is younger than the locks. Events are chosen behind materialized fences and
-- locked one by one until there are enough, so that what is locked is what is returned, whatever the plan.
--
-- New events and those whose wait is over come from queries of their own, each in the order of an index that it spells out;
-- parked is asked as in lock_ids.sql.
--
-- :table :where :state :id   as in lock_ids.sql
-- :priority     e's column of that name as an expression, or null::bigint when none is mapped
-- :urgent       true when one is, else false
-- :lock         what locks event k.id, or leaves k out: a condition, or a join with its row
-- :lock_class   the first half of the advisory locks
-- :locks_rows   true when :lock locks rows
--
-- $1 bigint     fresh: ids greater than this, newest first
-- $2 $3 bigint  oldest: ids from $2 to $3, oldest first
-- $4 bigint     rows to look at in each of these, and in the order of priority
-- $5 bigint     events to lock
-- $6 bigint     how many of 100 come from the oldest end, whatever their priority; the others by priority, then id
-- $7 bigint[]   events this relay is busy with or must not touch
-- $8 text       queue
-- $9 bigint     1: waits that are over come last
-- $10 $11 bigint  top: by priority from this one on, and of this one ids from $11 on
-- $12 bigint    no event has a smaller id, but those that wait: nothing to look at in top
--
-- One row:
-- oldest_left bigint   ids from here up were not looked at (of oldest); null: all were
-- seen_max bigint      greatest id seen in fresh and oldest; null: none
-- bare_min bigint      smallest id seen there below $12 that does not wait: put in by hand; null: none
-- missed_min, missed_max bigint   ids seen there and locked by somebody else; null: none
-- locked bigint        events locked
-- thin bigint          1: there were fewer to lock than $5, and there are more rows
-- top_priority, top_id bigint     top was not looked at from here on; null: all of it was
-- keyless, sign           what was left for the second half, and for those who ask what is under way
with waits as materialized (
    select exists (select from :state.parked p where p.queue = $8::text order by p.next_at offset 0) as any
), delayed as materialized (
    select p.event_id as id, p.next_at
    from :state.parked p
    where p.queue = $8::text and p.next_at <= pg_catalog.statement_timestamp() and p.keyless
      and not p.event_id = any ($7::bigint[])
    order by p.next_at
    limit greatest($5::bigint / 4, 1)
), fresh as materialized (
    select :id as id, :priority as priority from :table e
    where :id > $1::bigint and (:where)
    order by :id desc limit $4::bigint
), oldest as materialized (
    select id, priority, pg_catalog.row_number() over (order by id) as n
    from (select :id as id, :priority as priority from :table e
          where :id between $2::bigint and $3::bigint and (:where)
          order by :id limit $4::bigint) as rows
), top as materialized (
    -- What waits is left out here already: 100,000 delayed events of a high priority would be all that is seen.
    select id, priority, pg_catalog.row_number() over (order by priority desc, id) as n
    from ((select :id as id, :priority as priority from :table e
           where :urgent and :priority between $10::bigint and $10::bigint and :id >= greatest($11::bigint, $12::bigint)
             and (:where) and not :id = any (select pg_catalog.unnest($7::bigint[]))
             and case when not (select w.any from waits w) then true else not exists (
                 select from :state.parked p
                 where p.queue = $8::text and p.keyless and p.event_id between :id and :id
                 order by p.event_id offset 0) end
           order by :priority desc, :id limit $4::bigint)
          union all
          (select :id, :priority from :table e
           where :urgent and :priority < $10::bigint and :id >= $12::bigint
             and (:where) and not :id = any (select pg_catalog.unnest($7::bigint[]))
             and case when not (select w.any from waits w) then true else not exists (
                 select from :state.parked p
                 where p.queue = $8::text and p.keyless and p.event_id between :id and :id
                 order by p.event_id offset 0) end
           order by :priority desc, :id limit $4::bigint)
          limit $4::bigint) as rows
), found as materialized (
    -- The oldest and the most urgent take turns, $6 of 100 from the oldest: an event's place is the better one of its two.
    select id, pg_catalog.max(oldest_id) as oldest_id, pg_catalog.bool_or(by_id) as by_id, pg_catalog.min(place) as place
    from (
        select id, id as oldest_id, true as by_id, coalesce(n * 100 / nullif($6::bigint, 0), 1000000000 + n) as place
        from oldest
        union all
        select id, null, by_id,
               coalesce(pg_catalog.row_number() over (order by priority desc nulls last, id) * 100 / nullif(100 - $6::bigint, 0),
                        1000000000 + pg_catalog.row_number() over (order by id))
        from (select id, priority, pg_catalog.bool_or(by_id) as by_id
              from (select id, priority, true as by_id from fresh union all select id, priority, true from oldest
                    union all select id, priority, false from top) as rows
              group by 1, 2) as urgent
    ) as rows
    group by 1
), candidate as (
    select id, true as delayed, null::bigint as oldest_id, false as by_id,
           case when $9::bigint = 1 then 2000000000 else -1 end::bigint as place
    from delayed
    union all
    select f.id, false, f.oldest_id, f.by_id, f.place
    from found f
    where not f.id = any (select pg_catalog.unnest($7::bigint[]))
      and case when not (select w.any from waits w) then true else not exists (
          select from :state.parked p
          where p.queue = $8::text and p.keyless and p.event_id between f.id and f.id
          order by p.event_id offset 0) end
), ordered as materialized (
    select *, pg_catalog.row_number() over (order by place) as n from candidate
), taken as materialized (
    select k.n, k.id from ordered k :lock limit $5::bigint
), gone as materialized (
    -- There is no row to lock any more of an event that waited and is gone. Its entry is removed by whoever finds it first.
    select k.n, k.id from ordered k
    where :locks_rows and k.delayed and not exists (select from :table e where :id between k.id and k.id order by :id offset 0)
), locked as materialized (
    select n, id from taken union all select n, id from gone
), total as materialized (
    -- stop: there was no place for those behind it.
    select pg_catalog.count(*) as taken, case when pg_catalog.count(*) >= $5::bigint then pg_catalog.max(n) end as stop from taken
), missed as materialized (
    select pg_catalog.min(o.id) as low, pg_catalog.max(o.id) as high
    from ordered o cross join total t
    where o.by_id and o.n <= coalesce(t.stop, o.n) and not o.n = any (select l.n from locked l)
), left_over as materialized (
    select o.id, o.oldest_id from ordered o cross join total t where o.n > t.stop
), edge as materialized (
    select t.priority, t.id, t.n from top t where t.id = any (select o.id from left_over o)
    union all
    select t.priority, t.id + 1, t.n + 1 from top t where t.n >= $4::bigint
    order by n limit 1
)
select coalesce((select pg_catalog.min(o.oldest_id) from left_over o),
                (select pg_catalog.max(id) + 1 from oldest having pg_catalog.count(*) >= $4::bigint)) as oldest_left,
       (select pg_catalog.max(id) from (select id from fresh union all select id from oldest) as seen) as seen_max,
       (select pg_catalog.min(seen.id) from (select id from fresh union all select id from oldest) as seen
        where seen.id < $12::bigint and not exists (
            select from :state.parked p
            where p.queue = $8::text and p.keyless and p.event_id between seen.id and seen.id
            order by p.event_id offset 0)) as bare_min,
       m.low as missed_min, m.high as missed_max,
       (select pg_catalog.count(*) from locked) as locked,
       (t.taken < $5::bigint
        and ((select pg_catalog.count(*) from fresh) >= $4::bigint
             or (select pg_catalog.count(*) from oldest) >= $4::bigint
             or (select pg_catalog.count(*) from top) >= $4::bigint))::integer::bigint as thin,
       (select priority from edge)::bigint as top_priority, (select id from edge)::bigint as top_id,
       pg_catalog.set_config('courier.keyless', coalesce((select pg_catalog.array_agg(l.id order by l.n) from locked l)::text, '{}'),
                             true) as keyless,
       case when :locks_rows and t.taken > 0 then pg_catalog.pg_try_advisory_xact_lock_shared(:lock_class, 0) end as sign
from total t cross join missed m
