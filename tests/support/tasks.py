"""A task queue as people build it by hand: one table, one row a task, some more urgent than others.

    tasks = Tasks(db)
    ids = tasks.add(0, 0, 9)                       # a task of each priority
    ... relay(tasks.config(target.sink(), locks="advisory")) ..."""

from tests.support.postgres import RELAY_ROLE

LOCKS = ("rows", "advisory")

SCHEMA = """
create table public.tasks (
    id bigint generated always as identity primary key,
    customer text,
    priority int not null default 0,
    payload jsonb,
    created_at timestamptz not null default now()
) with (autovacuum_enabled = off);
create index tasks_priority on public.tasks (priority desc, id);
"""

CONFIG = """
database: "{database}"
sinks:
  out: {{ {sink} }}
queues:
  tasks:
    table: public.tasks
    columns: {{ key: customer, payload: payload, created_at: created_at{priority} }}
    ordering: unordered
    sink: out
"""


class Tasks:
    def __init__(self, db):
        self.db = db
        db.psql(SCHEMA)
        db.let_relay_in("public.tasks")
        db.query(f"grant update (id) on public.tasks to {RELAY_ROLE}")

    def add(self, *priorities, customer=None):
        return [row[0] for row in self.db.query(
            "insert into public.tasks (priority, customer, payload) select p, %s, '{\"n\": 1}' from unnest(%s::int[]) with ordinality as t (p, n)"
            " order by n returning id", (customer, list(priorities)))]

    def fill(self, count, priority=0):
        self.db.query("insert into public.tasks (priority, payload) select %s, '{}' from generate_series(1, %s)", (priority, count))

    def left(self):
        return self.db.value("select count(*) from public.tasks")

    def config(self, sink, priority=True, **queue):
        lines = [f"    {name}: {value}\n" for name, value in queue.items()]
        text = CONFIG.format(database=self.db.dsn, sink=sink, priority=", priority: priority" if priority else "")
        return text + "".join(lines)
