-- Is the queue paused, or one of its keys? Only keys that were paused lately: a claim passes over a paused key by itself,
-- but what was claimed before has to be given back. And is a schedule's event to be inserted, or is something leased by a
-- relay whose backend may be gone?
--
-- $1 text   queue
-- One row for the queue, if it is paused, and one for each key: key text (null: the queue), by text, reason text; and rows
-- with nothing but due bigint: 1 if schedule_run.sql has something to do, 2 if lease_end_ownerless.sql may have
select p.key, p.by, p.reason, null::bigint as due from outbox.paused p where p.queue = $1::text and p.key is null
union all
select p.key, p.by, p.reason, null from outbox.paused p
where p.queue = $1::text and p.key is not null and p.since > pg_catalog.statement_timestamp() - interval '1 minute'
union all
select null, null, null, 1 where exists (
    select from outbox.schedule s
    where s.queue = $1::text and s.next_at <= pg_catalog.statement_timestamp()
      and coalesce(s.retry_at, s.next_at) <= pg_catalog.statement_timestamp())
union all
select null, null, null, 2 where exists (
    select from outbox.parked p where p.queue = $1::text and p.token is not null and p.backend_pid is not null
    order by p.backend_pid, p.backend_start offset 0);
