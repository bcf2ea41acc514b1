-- Where events come after others: of those that somebody waits for, the ones that are done by now; who waits for them may be
-- claimed at once. Events are asked for by their ids, each once however many wait for it, and so many at a time. Half a million
-- may wait for one: so many of these at a time, too, and until all of them are woken the same events are asked for again.
--
-- A dead letter is not done. But it is to an event of outbox.events that comes again after another one (again_after), for which
-- alone an entry waits where the queue has no `after`.
--
-- An entry that has become something else meanwhile (a failure, a lease, a pause) is left alone. One that somebody has
-- locked is looked at another time: two relays that wake the same keys must not wait for each other.
--
-- Relays run this, and so do workers: queue_build_after() of sql/schema/009_workers_text.sql.
--
-- :table :state :id   as in lock_ids.sql
-- :undone     which rows e of the table are not done: its extra condition, or true where only again_after is asked
-- :lives      true where a dead letter is not done, else false
-- $1 text     queue
-- $2 bigint   events after this one
-- $3 bigint   so many of them
-- $4 bigint   entries to wake at most
-- One row: woken bigint, entries; last bigint, where to go on: the last event asked for, or $2 when there may be more to wake;
-- null when there are no more
with recursive named (id) as (
    (select p.after_id from :state.parked p where p.queue = $1::text and p.after_id > $2::bigint order by p.after_id limit 1)
    union all
    select (select p.after_id from :state.parked p where p.queue = $1::text and p.after_id > n.id order by p.after_id limit 1)
    from named n where n.id is not null
), asked as materialized (
    select n.id from named n where n.id is not null limit $3::bigint
), done as materialized (
    select a.id from asked a
    where not exists (select from :table e where :id between a.id and a.id and (:undone) order by :id offset 0)
      and not (:lives and exists (select from :state.dead d where d.queue = $1::text and d.event_id = a.id))
), waiting as materialized (
    select w.place from done d
    cross join lateral (
        select p.ctid as place from :state.parked p
        where p.queue = $1::text and p.after_id between d.id and d.id
          and p.attempts = 0 and p.last_error = '' and p.token is null and p.resume_at is null and p.next_at > pg_catalog.clock_timestamp()
        order by p.after_id limit $4::bigint for update skip locked) as w
    limit $4::bigint
), woken as (
    update :state.parked p
    set next_at = pg_catalog.clock_timestamp(), after_id = null, updated_at = pg_catalog.clock_timestamp()
    from waiting w where p.ctid = w.place
    returning 1
)
select (select pg_catalog.count(*) from woken) as woken,
       case when (select pg_catalog.count(*) from waiting) >= $4::bigint then $2::bigint
            else (select pg_catalog.max(a.id) from asked a having pg_catalog.count(*) >= $3::bigint) end as last;
