-- The second half of a claim: the events that lock_events.sql has locked, with what was noted of those that waited. A
-- snapshot younger than the locks sees what earlier holders have committed.
--
-- :table :where :state :id :columns :text_once   as in per_key_read.sql
--
-- $1 text      queue
-- $2 bigint    events at most
--
-- One row an event, with the columns of per_key_read.sql, and one for a pause as there; gone is always null.
select -1 as attempts, null::bigint as head, null::text as gone, e.*
from (select) as one
left join lateral (select :columns from :table e:text_once where false) as e on true
where exists (select from :state.paused p where p.queue = $1::text and p.key is null)
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
    where :id between k.id and k.id and (:where)
    order by :id offset 0
) as e on true
where case when p.event_id is null then e.id is not null else p.next_at <= pg_catalog.statement_timestamp() end
limit $2::bigint
