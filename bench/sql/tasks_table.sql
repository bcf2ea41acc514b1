-- The work queue of the articles: a table of tasks with a priority, whose rows wait for nobody.
create table public.tasks (id bigserial primary key, priority int not null default 0, payload jsonb not null);
create index on public.tasks (priority desc, id);
