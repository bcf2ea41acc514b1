"""A shop whose orders change status: the article's table, producers that fill it at once, and a journal of what they
committed. A sink's receipts are judged against the journal, not against anything a relay has written."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

from tests.support.history import Event

HOT_ORDER = 1

# The order is locked before an id is drawn, so that events of one order commit in id order.
SCHEMA = """
create table public.orders (id bigint primary key);
create table public.events (
    id bigserial primary key,
    order_id bigint,
    status text not null,
    created_at timestamptz not null default now()
);
create index events_order on public.events (order_id, id);
create function public.produce(keys bigint[]) returns table (event_id bigint, event_key text) language sql as $$
    select from public.orders where id = any (keys) order by id for update;
    insert into public.events (order_id, status)
    select key, 'paid' from unnest(keys) with ordinality as k (key, n) order by n
    returning id, order_id::text;
$$;
"""

CONFIG = """
database: "{dsn}"
sinks:
  out: {{ {sink} }}
queues:
  shop:
    table: public.events
    columns: {{ id: id, key: order_id, type: status, created_at: created_at }}
    sink: out
"""


class Shop:
    """Shop(db, orders=5000). Orders are 1 to `orders`; some events belong to none."""

    def __init__(self, db, orders=5000):
        self.db = db
        self.orders = orders
        self.journal = []  # Event(id, key) of every commit
        self._lock = threading.Lock()
        db.psql(SCHEMA)
        db.query("insert into public.orders select generate_series(1, %s)", (orders,))

    def insert(self, keys, connection=None):
        """Commits one event for each of the keys, None for an event without one, and returns them."""
        own = connection or self.db.connect()
        with own.cursor() as cursor:
            cursor.execute("select event_id, event_key from public.produce(%s::bigint[])", (list(keys),))
            events = [Event(*row) for row in cursor]
        if own is not connection:
            own.close()
        with self._lock:
            self.journal.extend(events)
        return events

    def choose(self, rng, count):
        """Keys at random: mostly any order, one in twenty the hot one, one in fifty none at all."""
        draws = [rng.random() for _ in range(count)]
        return [HOT_ORDER if draw < 0.05 else None if draw < 0.07 else rng.randint(1, self.orders) for draw in draws]

    def _producer(self, seed, commits, events_per_commit):
        rng = random.Random(seed)
        connection = self.db.connect()
        for _ in range(commits):
            self.insert(self.choose(rng, events_per_commit), connection)
        connection.close()

    def produce(self, events, producers=8, seed=1, events_per_commit=25):
        """`events` events by concurrent producers; returns when all are committed."""
        commits = events // producers // events_per_commit
        with ThreadPoolExecutor(producers) as pool:
            running = [pool.submit(self._producer, seed * 1000 + n, commits, events_per_commit) for n in range(producers)]
        for one in running:
            one.result()

    def config(self, sink, application_name="pgcourier", **queue):
        """A configuration with one sink, given as the inside of a YAML mapping, and more settings of the queue."""
        lines = [f"    {name}: {value}\n" for name, value in queue.items()]
        return CONFIG.format(dsn=f"{self.db.dsn} application_name={application_name}", sink=sink) + "".join(lines)

    def left(self):
        return self.db.value("select count(*) from public.events")

    def settled(self):
        """How many of the journal's events have left the table."""
        left = self.left()
        return len(self.journal) - left

    def archived(self):
        return self.db.value("select count(*) from outbox.archive")
