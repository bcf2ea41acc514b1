-- The end of a claim of `ordering: lease`: the keys it has locked and read become ours for a term, by an entry each in
-- outbox.parked, and stay so when the commit lets the locks go. See sql/schema/009_workers_text.sql, which does the same for
-- workers that pull. A key that somebody has paused meanwhile is both, leased and paused.
--
-- :state       as in lock_ids.sql
-- $1 text      queue
-- $2 text[]    keys; null: an event without one
-- $3 bigint[]  their heads
-- $4 bigint[]  failures so far, of these
-- $5 text[]    tokens, each new
-- $6 text      who we are
-- $7 bigint    the term, microseconds
-- $8 integer   the backend whose end ends the leases, too; 0: there is none such
--
-- A lease that ends with a backend ends with the server, too. So nothing waits for its entry to be safe from a crash: what
-- comes back from one without it has no lease, as with it. The entries of other leases have to outlive their server.
--
-- A lease that ran out is a failure, and may be the first. What waited for another event may be found to wait on: since when it
-- does stays, because after_id, by which settle_park.sql would know, does not.
--
-- One row: granted bigint, how many; all of them, or something is wrong; synchronous_commit text, of this transaction, null
-- where it is as it was
with owner as materialized (
    -- The server still does what it was told by a relay that has died: a backend that is gone by now ended long ago. Of
    -- one that is hidden from us nothing is known.
    select $8::integer as pid, case when a.pid is null then '-infinity' else a.backend_start end as backend_start
    from pg_catalog.unnest(array[$8::integer]) as b (pid)
    left join pg_catalog.pg_stat_get_activity($8::integer) a on true
    where b.pid <> 0 and (a.pid is null or a.backend_start is not null)
), wanted as materialized (
    select w.key, w.id, w.failures, w.token, pg_catalog.clock_timestamp() as taken_at,
           $7::bigint * interval '1 microsecond' as lease
    from rows from (pg_catalog.unnest($2::text[]), pg_catalog.unnest($3::bigint[]), pg_catalog.unnest($4::bigint[]),
                    pg_catalog.unnest($5::text[]::uuid[])) as w (key, id, failures, token)
), keyed as (
    insert into :state.parked as p (queue, key, event_id, keyless, attempts, next_at, token, worker, taken_id, taken_at, lease,
                                    backend_pid, backend_start)
    select $1::text, w.key, w.id, false, w.failures, w.taken_at + w.lease, w.token, $6::text, w.id, w.taken_at, w.lease, o.pid, o.backend_start
    from wanted w left join owner o on true
    where w.key is not null order by w.key collate "C"
    on conflict (queue, key) where not keyless do update
    set event_id = excluded.event_id, attempts = excluded.attempts,
        next_at = case when p.resume_at is null then excluded.next_at else p.next_at end,
        resume_at = case when p.resume_at is not null then excluded.next_at end,
        token = excluded.token, worker = excluded.worker, taken_id = excluded.taken_id, taken_at = excluded.taken_at,
        lease = excluded.lease, backend_pid = excluded.backend_pid, backend_start = excluded.backend_start,
        first_failed_at = case when p.attempts > 0 and excluded.attempts > 0 or p.after_id is not null and p.event_id = excluded.event_id
                               then p.first_failed_at else excluded.taken_at end,
        after_id = null, updated_at = excluded.taken_at
    returning 1
), keyless as (
    insert into :state.parked as p (queue, key, event_id, keyless, attempts, next_at, token, worker, taken_id, taken_at, lease,
                                    backend_pid, backend_start)
    select $1::text, '', w.id, true, w.failures, w.taken_at + w.lease, w.token, $6::text, w.id, w.taken_at, w.lease, o.pid, o.backend_start
    from wanted w left join owner o on true
    where w.key is null order by w.id
    on conflict (queue, event_id) where keyless do update
    set attempts = excluded.attempts, next_at = excluded.next_at,
        token = excluded.token, worker = excluded.worker, taken_id = excluded.taken_id, taken_at = excluded.taken_at,
        lease = excluded.lease, backend_pid = excluded.backend_pid, backend_start = excluded.backend_start,
        first_failed_at = case when p.attempts > 0 and excluded.attempts > 0 or p.after_id is not null
                               then p.first_failed_at else excluded.taken_at end,
        after_id = null, updated_at = excluded.taken_at
    returning 1
)
select (select pg_catalog.count(*) from keyed) + (select pg_catalog.count(*) from keyless) as granted,
       (select pg_catalog.set_config('synchronous_commit', 'off', true) from owner) as synchronous_commit
