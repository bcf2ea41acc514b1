-- Where what is not due lets others of its key pass: the keys of what has become due get an entry in parked, as if their event
-- had been put back, because it may lie below all ids that are looked at. A range of times that ends now and begins a
-- little before the end of the last one: an event that another session shows only now was not due in any claim before.
--
-- An entry that is there already points at the event at least. A wait after a failure goes on, and so do a lease and a pause;
-- one for a time, or for another event, was not this one's (as outbox.ahead_sql() says of workers). That of a closed key remains
-- at the event that closed it, which is what `dead drop` drops: when it is opened, the key is read from its oldest event on.
-- So its events are not asked for again. One that somebody has locked is looked at another time, and so are all events of this
-- range: whoever settles it may wait for another entry that is locked here.
--
-- Relays run this, and so do workers: queue_build_due() of sql/schema/010_workers_build.sql.
--
-- :table :where :state :id :key :not_before   as in lock_ids.sql; :where has only what is due
-- $1 text     queue
-- $2 bigint   microseconds since 1970: the end of the last look; null: from now on
-- $3 bigint   events at most
-- One row: found bigint, how many there were that no entry pointed at; looked bigint, the end of this look, or of the last
with look as materialized (
    select pg_catalog.clock_timestamp() as now -- a call of take() may be one of many in a statement
), due as materialized (
    select id, key from (
        select :id as id, (:key)::text as key from :table e
        where :not_before > coalesce('epoch'::timestamptz + ($2::bigint - 2000000) * interval '1 microsecond', (select l.now from look l))
          and :not_before <= (select l.now from look l) and (:where)
        order by :not_before) as e
    where case when e.key is null then not exists (
              select from :state.parked p
              where p.queue = $1::text and p.keyless and p.event_id between e.id and e.id
              order by p.event_id offset 0)
          else not exists (
              select from :state.parked p
              where p.queue = $1::text and not p.keyless
                and (p.event_id <= e.id or (p.next_at < 'infinity' or p.resume_at < 'infinity' or (p.attempts = 0 and p.last_error = '')) is not true)
                and p.key between (e.key collate "default") and (e.key collate "default")
              order by p.key offset 0) end
    limit $3::bigint
), head as materialized (
    select k.key, k.id, p.place, l.ours
    from (select d.key, pg_catalog.min(d.id) as id from due d where d.key is not null group by d.key) as k
    left join lateral (
        select p.ctid as place from :state.parked p
        where p.queue = $1::text and not p.keyless and p.key between (k.key collate "default") and (k.key collate "default")
        order by p.key offset 0) as p on true
    left join lateral (select true as ours from :state.parked w where w.ctid = p.place for update skip locked) as l on true
), keyed as (
    insert into :state.parked as p (queue, key, event_id, keyless, next_at)
    select $1::text, h.key, h.id, false, l.now from head h cross join look l
    where h.place is null or h.ours order by h.key collate "C"
    on conflict (queue, key) where not keyless do update
    set event_id = excluded.event_id, attempts = case when p.token is null then 0 else p.attempts end, updated_at = pg_catalog.clock_timestamp(),
        after_id = case when (p.attempts > 0 or p.last_error <> '' or p.token is not null or p.resume_at is not null) then p.after_id end,
        next_at = case when (p.attempts > 0 or p.last_error <> '' or p.token is not null or p.resume_at is not null) then p.next_at
                       else least(p.next_at, pg_catalog.clock_timestamp()) end
    where p.event_id > excluded.event_id and (p.next_at < 'infinity' or p.resume_at < 'infinity' or (p.attempts = 0 and p.last_error = ''))
), keyless as (
    insert into :state.parked as p (queue, key, event_id, keyless, next_at)
    select $1::text, '', d.id, true, l.now from due d cross join look l where d.key is null order by d.id
    on conflict do nothing
)
select (select pg_catalog.count(*) from due) as found,
       case when (select pg_catalog.bool_or(h.place is not null and h.ours is null) from head h) then $2::bigint
            else (select extract(epoch from l.now) * 1000000 from look l)::bigint end as looked;
