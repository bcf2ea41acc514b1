-- A queue with :rows events that wait and as many in the archive, over a week, and a tenth as many dead letters. For
-- bench/answers.py and tests/integration/schema/test_answers_size.py.
set timezone = 'UTC';
select outbox.queue_set('tasks', after => 'archive');
insert into outbox.events (aggregateid, type, payload, created_at)
select 'key-' || n % greatest(:rows / 4, 1), 'task', jsonb_build_object('n', n, 'note', repeat('x', 100)), now() - interval '1 hour' + n * interval '1 ms'
from generate_series(1, :rows) n;
do $$
begin
    for day in 0 .. 7 loop -- these days have been, or are
        if to_regclass(format('outbox.archive_%s', to_char(current_date - day, 'YYYYMMDD'))) is null then
            execute format('create table outbox.archive_%s partition of outbox.archive for values from (%L) to (%L)',
                           to_char(current_date - day, 'YYYYMMDD'), current_date - day, current_date - day + 1);
        end if;
    end loop;
end
$$;
insert into outbox.archive (queue, event_id, key, created_at, archived_at, original)
select 'tasks', -n, 'key-' || n % 1000, at - interval '50 ms', at, json_build_object('id', -n, 'payload', json_build_object('note', repeat('x', 100)))
from generate_series(1, :rows) n cross join lateral (select clock_timestamp() - n * interval '6 days' / :rows as at) t
order by at;
insert into outbox.dead (queue, event_id, key, reason, attempts, source_table, original, died_at)
select 'tasks', -n, 'key-' || n % 1000, 'error ' || n % 20, 3, 'outbox.events', '{}', now() - n * interval '6 days' / :rows from generate_series(1, :rows / 10) n;
vacuum analyze outbox.events, outbox.archive, outbox.dead;
