"""A table of order events to drain, and what came of them."""

import json
from collections import Counter

TABLE = ("create table public.events (id bigserial primary key, order_id bigint, status text not null,"
         " created_at timestamptz not null default now());"
         "create index events_order on public.events (order_id, id)")

CONFIG = """\
database: "{database}"
{top}
sinks:
  out: {sink}
queues:
  orders:
    table: public.events
    columns: {{ id: id, key: order_id, type: status, created_at: created_at }}
    sink: out
{queue}
"""


class Orders:
    """Orders(db) creates the table of the article; add() fills it."""

    def __init__(self, db):
        self.db = db
        db.query(TABLE)

    def add(self, events, keys):
        """`events` rows over `keys` orders, one transaction; the rows of an order are spread over the whole."""
        self.db.query("insert into public.events (order_id, status)"
                      " select n %% %s, 'step' from generate_series(1, %s) as n", (keys, events))

    def left(self):
        return self.db.value("select count(*) from public.events")

    def attempts(self):
        """Failures on record; none of them was an event's own fault when this is 0."""
        return self.db.value("select coalesce(sum(attempts), 0) from outbox.parked") + \
            self.db.value("select count(*) from outbox.dead")

    def config(self, sink, top="", database=None, **queue):
        """top: more lines at the top level. queue: its other settings, as YAML text."""
        lines = "\n".join(f"    {name}: {value}" for name, value in queue.items())
        return CONFIG.format(database=database or self.db.dsn, sink=sink, top=top, queue=lines)


def read_lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def deliveries_of(path):
    """(key, id) of every line of a file sink, in order of arrival."""
    return [(line["key"], line["id"]) for line in read_lines(path)]


def check_history(deliveries, expected, duplicates_max=0):
    """Every expected id arrived; an id that arrives for the first time is greater than all before it of its key; no more
    duplicates than faults explain. Returns the number of duplicates."""
    seen, newest = Counter(), {}
    for key, event_id in deliveries:
        if event_id not in seen:
            assert event_id > newest.get(key, 0), f"event {event_id} of key {key} came after {newest[key]}"
            newest[key] = event_id
        seen[event_id] += 1
    missing, strangers = set(expected) - set(seen), set(seen) - set(expected)
    assert not missing, f"{len(missing)} events never arrived, e.g. {sorted(missing)[:5]}"
    assert not strangers, f"{len(strangers)} events arrived that nobody inserted, e.g. {sorted(strangers)[:5]}"
    duplicates = len(deliveries) - len(seen)
    assert duplicates <= duplicates_max, f"{duplicates} duplicates, at most {duplicates_max} have an explanation"
    return duplicates
