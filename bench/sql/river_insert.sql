-- One job of 300 bytes, and for each EACHth one the notification that River's client sends in the same transaction: the channel is
-- that of River's PGNotifyMany, the payload that of maybeNotifyInsertForQueues (client.go). The columns are those of
-- JobInsertFastManyNoReturning. Not each job has one, because River's client notifies no more often than once in a FetchCooldown.
-- $1 int number of the connection
with job as (
    insert into river_job (args, kind, max_attempts, metadata, priority, queue, state, tags)
    values (('{"note": "' || rpad('', 288, 'x') || '", "connection": ' || $1::int || '}')::jsonb, 'bench', 25, '{}', 1, 'default', 'available', '{}')
    returning id, created_at)
select id, created_at, case when id % EACH = 0 then pg_notify(current_schema() || '.river_insert', '{"queue": "default"}')::text end
from job
