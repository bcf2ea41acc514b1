"""The statements by which the tables of the presets are worked off by their own relays and workers, as each table's article or
software has them: `-- NAME`, and a statement."""

THEIRS = {
    "eventuate": """
-- take
select id, destination, headers, payload from eventuate.message where published = 0 order by dbid limit 1;
-- done
update eventuate.message set published = 1 where id = :id;
""",
    "open-outbox": """
-- take
update public.openoutbox_events e set status = 'DELIVERING', locked_by = :worker, locked_at = now()
 where e.event_id in (select f.event_id from public.openoutbox_events f
                       where f.status = 'PENDING' and f.available_at <= now()
                       order by f.seq for update skip locked limit 1)
returning e.event_id as id, e.payload;
-- done
update public.openoutbox_events set status = 'DELIVERED', delivered_at = now(), locked_by = null where event_id = :id and locked_by = :worker;
-- later
update public.openoutbox_events
   set status = 'PENDING', locked_by = null, attempts = attempts + 1, last_error = 'timeout', available_at = now() + interval '1 second'
 where event_id = :id and locked_by = :worker;
""",
    "workqueue": """
-- take
with task as (
    select id from public.workqueue where locked_by is null or locked_at < now() - interval '5 minutes'
     order by id for update skip locked limit 1)
update public.workqueue q set locked_by = :worker, locked_at = now() from task where task.id = q.id
returning q.id, q.payload;
-- done
delete from public.workqueue where id = :id;
-- keep
with done as (delete from public.workqueue where id = :id returning *)
insert into public.workqueue_archive select * from done;
-- again
update public.workqueue set locked_by = null, locked_at = null where id = :id;
""",
    "task": """
-- take
update public.task t set status = 'running', attempts = t.attempts + 1, begun_at = now(), updated_at = now()
 where t.id in (select n.id from public.task n where n.status = 'new'
                 order by n.priority desc, n.id for update skip locked limit 1)
returning t.id, t.payload;
-- done
update public.task set status = 'done', ended_at = now(), updated_at = now() where id = :id and status = 'running';
-- failed
update public.task set status = 'failed', error_text = 'timeout', updated_at = now() where id = :id and status = 'running';
-- again
update public.task set status = 'new', updated_at = now() where status = 'failed' and error_text like 'timeout%';
-- hung
update public.task set status = 'new', updated_at = now() where status = 'running' and begun_at < now() - interval '5 minutes';
""",
    "tasks_queue": """
-- take
update public.tasks_queue t set status = 'running', worker = :worker, heartbeat_at = now(), attempts = t.attempts + 1
 where t.id in (select n.id from public.tasks_queue n where n.status = 'queued' order by n.id for update skip locked limit 1)
returning t.id, t.payload;
-- alive
update public.tasks_queue set heartbeat_at = now() where worker = :worker and status = 'running';
-- done
update public.tasks_queue set status = 'done' where id = :id and worker = :worker and status = 'running';
-- again
update public.tasks_queue set status = case when attempts < 5 then 'queued' else 'failed' end, worker = null
 where id = :id and worker = :worker and status = 'running';
-- hung
update public.tasks_queue set status = 'queued', worker = null where status = 'running' and heartbeat_at < now() - interval '5 minutes';
""",
}
