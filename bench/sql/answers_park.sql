-- Of :entries entries in outbox.parked all wait for their time (:kind delayed), for a retry (parked), for somebody (closed) or
-- for their workers (running), but for forty: ten of each kind.
truncate outbox.parked;
insert into outbox.parked (queue, key, event_id, attempts, next_at, last_error, token, worker, taken_id, taken_at)
select 'tasks', 'waits-' || n, n, (kind in ('parked', 'closed'))::int,
       case when kind = 'closed' then 'infinity' else now() + interval '1 day' + n * interval '1 ms' end,
       case when kind in ('parked', 'closed') then 'error ' || n % 20 else '' end,
       case when kind = 'running' then gen_random_uuid() end, case when kind = 'running' then 'worker' end,
       case when kind = 'running' then n end, case when kind = 'running' then now() end
from (select n, case when n <= :entries - 40 then :'kind' else (array['delayed', 'parked', 'closed', 'running'])[1 + n % 4] end as kind
      from generate_series(1, :entries) n) w;
vacuum analyze outbox.parked;
