-- The second half of a claim like per_key_read.sql, with its parameters and columns, for keys that have few events each: one
-- walk over the index on key and id takes half the time of a look-up for each key. It has no limit for a key ($3 holds
-- for those that wait or were left behind, which are read apart), and when not everything can be read, the order of the
-- keys is unfair: so it is used while everything can. Few entries of parked are read once, as in lock_ids.sql.
--
-- :table :where :state :id :key :key_type   as in lock_ids.sql
-- :columns :text_once :key_range :key_order as in per_key_read.sql
with few as materialized (
    select p.key, p.keyless, p.event_id from :state.parked p where p.queue = $1::text order by p.next_at limit 65
), known as materialized (
    select pg_catalog.count(*) as entries from few
), apart as materialized (
    select k.name, w.attempts, w.event_id, w.next_at, l.id as left_id
    from (select n.name
          from pg_catalog.unnest(case when (select entries > 0 from known) or pg_catalog.cardinality($5::text[]) > 0
              then pg_catalog.current_setting('courier.claim')::text[] end) as n (name)
          where (select entries >= 65 from known) or n.name = any (select f.key from few f where not f.keyless)
             or n.name = any (select pg_catalog.unnest($5::text[]))) as k
    left join lateral (
        select (w.attempts + (w.token is not null)::integer) * (w.token is null or w.event_id = w.taken_id)::integer as attempts,
               w.event_id, w.next_at
        from :state.parked w
        where w.queue = $1::text and not w.keyless and w.key between k.name and k.name
        order by w.key offset 0
    ) as w on true
    left join lateral (
        select case when k.name = any (select pg_catalog.unnest($5::text[])) then (
            select pg_catalog.min(b.id) from rows from (pg_catalog.unnest($5::text[]), pg_catalog.unnest($6::bigint[])) as b (key, id)
            where b.key = k.name) end as id
    ) as l on true
    where w.event_id is not null or l.id is not null
)
select -1 as attempts, null::bigint as head, null::text as gone, e.*
from (select) as one
left join lateral (select :columns from :table e:text_once where false) as e on true
where exists (select from :state.paused p where p.queue = $1::text and p.key is null)
union all
(select null, null, null, :columns
 from :table e:text_once
 where :key = any (pg_catalog.current_setting('courier.claim'):::key_type[]) and :id >= $2::bigint and (:where)
   and not (:key)::text = any (select a.name from apart a)
 order by :key, :id limit $4::bigint)
union all
select p.attempts, p.event_id, case when e.id is null then p.name end, e.*
from apart p
cross join lateral (select p.name) as k (name)
cross join lateral (select p.left_id) as l (id)
left join lateral (
    select :columns from :table e:text_once
    where :key_range and (:where)
    order by :key_order limit $3::bigint
) as e on true
where case when p.event_id is null then e.id is not null else p.next_at <= pg_catalog.statement_timestamp() end
union all
select p.attempts, p.event_id, null, e.*
from pg_catalog.unnest(pg_catalog.current_setting('courier.keyless')::bigint[]) as k (id)
left join lateral (
    select w.attempts + (w.token is not null)::integer as attempts, w.event_id, w.next_at from :state.parked w
    where w.queue = $1::text and w.keyless and w.event_id between k.id and k.id
    order by w.event_id offset 0
) as p on true
left join lateral (
    select :columns from :table e:text_once
    where :id = k.id and :key is null and (:where)
) as e on true
where case when p.event_id is null then e.id is not null else p.next_at <= pg_catalog.statement_timestamp() end
limit $4::bigint
