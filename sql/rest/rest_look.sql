-- The last look before the queue rests: is there an event that does not wait, and what is the next instant at which something
-- becomes due? All of the table is looked at, also what claims take for settled. An event that somebody has leased, or that
-- comes after another one, may be a claim's without anybody writing a row: so it counts as not waiting.
--
-- :table :where :id :key :parked_key :not_before :in_order   as in lock_ids.sql and queue_empty.sql
-- $1 text    queue
-- $2 bigint  1: keys are claimed; 0: events alone
-- $3 text    window, or null; $4 text, its zone: as in window_look.sql
-- $5 bigint  1: what is not due lets others pass, and has no entry; else 0
-- One row: idle boolean, nobody may claim: the queue is paused or its window closed; waiting boolean; due bigint, microseconds
-- until the next instant, or null
with clock as materialized (
    select pg_catalog.statement_timestamp() as now, pg_catalog.statement_timestamp() at time zone $4::text as here
), edge as materialized (
    select pg_catalog.split_part($3::text, '-', n)::time as at, n from pg_catalog.generate_series(1, 2) n where $3::text is not null
), shut as (
    select case when o.at < c.at then k.here::time < o.at or k.here::time >= c.at
                else k.here::time < o.at and k.here::time >= c.at end as now
    from clock k cross join edge o cross join edge c where o.n = 1 and c.n = 2
), instant (at) as (
    (select p.next_at from outbox.parked p
      where p.queue = $1::text and p.next_at > (select c.now from clock c) and p.next_at < 'infinity'
        and (p.keyless or ($2::bigint = 1 and (:parked_key) is not null))
      order by p.next_at limit 1)
    union all
    (select :not_before from :table e
      where $5::bigint = 1 and :not_before > (select c.now from clock c) and :not_before < 'infinity' order by :not_before limit 1)
    union all
    select greatest(s.next_at, s.retry_at) from outbox.schedule s where s.queue = $1::text and s.next_at < 'infinity'
    union all
    select (c.here::date + d + e.at) at time zone $4::text from clock c cross join edge e cross join pg_catalog.generate_series(0, 1) d
     where c.here::date + d + e.at > c.here
)
select exists (select from outbox.paused p where p.queue = $1::text and p.key is null) or coalesce((select s.now from shut s), false) as idle,
       exists (select from outbox.parked p
                where p.queue = $1::text and p.next_at <= (select c.now from clock c)
                  and (p.keyless or ($2::bigint = 1 and (:parked_key) is not null)))
       or exists (select from outbox.parked p where p.queue = $1::text and p.after_id is not null)
       or exists (select from outbox.parked p where p.queue = $1::text and p.token is not null and p.next_at < 'infinity')
       or exists (select from outbox.parked p where p.queue = $1::text and p.token is not null and p.resume_at is not null)
       or exists (
           select from :table e
            where (:where)
              and case when (:key)::text is null then not exists (
                  select from outbox.parked p
                  where p.queue = $1::text and p.keyless and p.next_at > (select c.now from clock c) and p.event_id between :id and :id
                  order by p.event_id offset 0)
              else not exists (
                  select from outbox.parked p
                  where p.queue = $1::text and not p.keyless and p.next_at > (select c.now from clock c)
                    and p.key between ((:key)::text collate "default") and ((:key)::text collate "default")
                  order by p.key offset 0) end
            :in_order
            limit 1) as waiting,
       (extract(epoch from (select pg_catalog.min(i.at) from instant i) - pg_catalog.clock_timestamp()) * 1000000)::bigint as due
