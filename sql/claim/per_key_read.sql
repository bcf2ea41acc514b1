-- The second half of a claim: the oldest events of the keys that lock_ids.sql has locked. A snapshot younger than
-- the locks sees everything that earlier holders of these keys have committed. parked is asked as there.
--
-- :table :where :state :id :key   as in lock_ids.sql
-- :columns     the event's columns, as in the list below from created_at on
-- :text_once   a join of e with its payload's text, or empty where :columns asks for that but once
-- :key_range   the condition that picks the events of key k.name with an id of at least least($2, p.event_id, l.id)
-- :key_order   the id order of those events, spelled so that the index on the key serves it
--
-- $1 text      queue
-- $2 bigint    no event has a smaller id, but of keys whose wait says otherwise, or $5
-- $3 bigint    events of one key at most
-- $4 bigint    events at most
-- $5 text[]    keys that have events with an id of less than $2 (ordering/left_behind.h),
-- $6 bigint[]  and an id that none of these is smaller than
--
-- One row an event, events of one key together and in id order:
-- attempts int      failures so far, of event `head`; a lease of it that ran out is one (and of another event that was put
--                   back in front of the one that was leased, it is none); -1 in a first row that has nothing else: the
--                   queue is paused. As this snapshot is younger than the locks, a claim whose locks nobody could see
--                   when the pause was committed knows of it
-- head bigint       the event the key waited for; null: it did not wait
-- gone text         the key, when it waited and has no event any more; everything below is null then
-- id bigint         null as well: an event without a key that waited and is gone
-- created_at timestamptz
-- oversize bigint   bytes of the payload when it is larger than may be sent, else null
-- key, type text
-- payload           text or bytea
-- headers, event_id, traceparent text
-- tid               where the row is: deleted_by_place.sql finds it there
-- ...               one text for each extra column
select -1 as attempts, null::bigint as head, null::text as gone, e.*
from (select) as one
left join lateral (select :columns from :table e:text_once where false) as e on true
where exists (select from :state.paused p where p.queue = $1::text and p.key is null)
union all
select p.attempts, p.event_id, case when e.id is null then k.name end, e.*
from pg_catalog.unnest(pg_catalog.current_setting('courier.claim')::text[]) as k (name)
left join lateral (
    select (w.attempts + (w.token is not null)::integer) * (w.token is null or w.event_id = w.taken_id)::integer as attempts,
           w.event_id, w.next_at
    from :state.parked w
    where w.queue = $1::text and not w.keyless and w.key between k.name and k.name
    order by w.key offset 0
) as p on true
left join lateral (
    select case when k.name = any (select pg_catalog.unnest($5::text[])) then (
        select pg_catalog.min(b.id) from rows from (pg_catalog.unnest($5::text[]), pg_catalog.unnest($6::bigint[])) as b (key, id)
        where b.key = k.name) end as id
) as l on true
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
