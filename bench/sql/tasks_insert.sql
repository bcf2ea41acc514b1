-- Ten tasks of a producer, for pgbench.
insert into public.tasks (payload) select 'PAYLOAD' from generate_series(1, 10);
