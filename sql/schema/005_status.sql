-- 005_status: views that a dashboard may read every few seconds. None of them counts an events table.

create view outbox.status_parked as
    select queue,
           count(*)                                                           as keys,
           count(*) filter (where resume_at is null and next_at = 'infinity'
                              and (attempts > 0 or last_error <> ''))     as closed,
           count(*) filter (where resume_at is not null)                  as paused,
           count(*) filter (where resume_at is null and attempts = 0 and last_error = ''
                              and next_at > now())                        as delayed,
           max(attempts)                                                  as most_attempts,
           min(first_failed_at) filter (where last_error <> '')           as oldest_failure
      from outbox.parked
     where (token is null or resume_at is not null) -- what a worker has does not wait: see status_leases
       -- nor does what is due and has not failed: it was put back, or its time has come, and no claim has been there since
       and (resume_at is not null or attempts > 0 or last_error <> '' or next_at > now())
     group by queue;

-- What stands still until somebody opens or resumes it, or an event that is due at infinity gets a time: a key, or with
-- keyless one event.
create view outbox.status_closed as
    select queue, key, event_id, keyless from outbox.parked where next_at = 'infinity';

create view outbox.status_dead as
    select queue, count(*) as events, min(died_at) as first_died_at, max(died_at) as last_died_at
      from outbox.dead
     group by queue;

-- Of outbox.events only; `pgcourier status` reads the table of each queue. The estimate is the planner's.
create view outbox.status_events as
    select greatest(c.reltuples, 0)::bigint as estimate,
           oldest.id                        as oldest_id,
           oldest.created_at                as oldest_created_at
      from pg_catalog.pg_class c
      left join lateral (select e.id, e.created_at from outbox.events e order by e.id limit 1) oldest on true
     where c.oid = 'outbox.events'::pg_catalog.regclass;
