"""A table of events that wait for their time, and who serves it."""

from tests.support.postgres import OWNER_ROLE
from tests.support.workers import Worker

CONFIG = """
database: "{dsn}"
sinks: {{ hook: {{ type: http, url: "{url}" }} }}
queues:
  timers:
    table: public.timers
    columns: {{ key: k, not_before: at }}
    sink: hook
    delayed: {delayed}
"""
TABLE = """
create table public.timers (id bigint primary key, k text, at timestamptz);
create index on public.timers (k, id);
create index on public.timers (at) where at is not null"""
PUT = "insert into public.timers select id, k, clock_timestamp() + wait * interval '1 s' from (values %s) as t (id, k, wait)"
WAITS = "select keys, delayed from outbox.status_parked where queue = 'timers'"


def put_into(db):
    """put(e1=(key, seconds), ...) puts events that are due so many seconds from now."""
    db.query(TABLE)
    db.let_relay_in("public.timers")

    def put(**events):
        rows = ", ".join(f"({name[1:]}, {'null' if key is None else repr(key)}, {wait})" for name, (key, wait) in events.items())
        db.query(PUT % rows)

    return put


def sent(http):
    return [request.json()["id"] for request in http.requests]


def over_timers(db, delayed):
    db.query(f"grant select, delete on public.timers to {OWNER_ROLE}; set role {OWNER_ROLE};"
             f" select outbox.queue_set('timers', 'public.timers', key_column => 'k', not_before_column => 'at', delayed => '{delayed}')")
    return Worker(db, "timers")
