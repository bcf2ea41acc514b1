-- The second half of a claim on an ordinary day: the oldest events of the keys that fresh_lock.sql has locked. A snapshot
-- younger than the locks sees everything that earlier holders of these keys have committed. A key that waits by now is left
-- out, and all are where the queue is paused: nothing is read of them.
--
-- :table :where :state :id :key   as in lock_ids.sql
-- :columns :text_once :key_range :key_order   as in per_key_read.sql; here no key has a p or an l
--
-- $1 text      queue
-- $2 bigint    no event of these keys has a smaller id
-- $3 bigint    events of one key at most
-- $4 bigint    events at most
--
-- Rows as of per_key_read.sql; attempts, head and gone are null.
select null::integer as attempts, p.event_id as head, null::text as gone, e.*
from pg_catalog.unnest(pg_catalog.current_setting('courier.claim')::text[]) as k (name)
cross join (select null::bigint as event_id) as p
cross join (select null::bigint as id) as l
cross join lateral (
    select :columns from :table e:text_once
    where :key_range and (:where)
    order by :key_order limit $3::bigint
) as e
where not exists (select from :state.paused s where s.queue = $1::text and s.key is null)
  and not exists (
      select from :state.parked w
      where w.queue = $1::text and not w.keyless and w.key between k.name and k.name
      order by w.key offset 0)
union all
select null, null, null, e.*
from pg_catalog.unnest(pg_catalog.current_setting('courier.keyless')::bigint[]) as k (id)
cross join lateral (
    select :columns from :table e:text_once
    where :id = k.id and :key is null and (:where)
) as e
where not exists (select from :state.paused s where s.queue = $1::text and s.key is null)
  and not exists (
      select from :state.parked w
      where w.queue = $1::text and w.keyless and w.event_id between k.id and k.id
      order by w.event_id offset 0)
limit $4::bigint
