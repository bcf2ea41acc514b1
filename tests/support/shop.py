"""A shop whose orders change status: the article's table, producers that fill it, and the journal of what they committed.
A sink's receipts are judged against that journal, not against anything a relay has written.

    shop = Shop(db)
    shop.add(2000, keys=200)   # or insert(keys), or produce(events) by many at once
    ... relay(shop.config(target.sink(), **target.queue)) ...
    shop.check(target.receipts(), faults)
"""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

from tests.support.history import Event, Final, Parked, check

HOT_ORDER = 1

# The order is locked before an id is drawn, so that events of one order commit in id order. A payload has a NUL byte and
# bytes that are no text; what stands for it in the journal is reckoned as tests.support.journal.digest does.
SCHEMA = """
create table public.orders (id bigint primary key);
create table public.events (
    id bigserial primary key,
    order_id bigint,
    status text not null,
    created_at timestamptz not null default now(),
    payload bytea
);
create index events_order on public.events (order_id, id);
create function public.payload(key bigint) returns bytea language sql volatile as $$
    select convert_to('order ' || coalesce(key::text, 'none'), 'UTF8') || '\\x00'::bytea || uuid_send(gen_random_uuid());
$$;
create function public.produce(keys bigint[]) returns table (event_id bigint, event_key text, hash text) language sql as $$
    select from public.orders where id = any (keys) order by id for update;
    insert into public.events (order_id, status, payload)
    select key, 'paid', public.payload(key) from unnest(keys) with ordinality as k (key, n) order by n
    returning id, order_id::text, left(encode(sha256(payload), 'hex'), 16);
$$;
"""

ADD = """
insert into public.events (order_id, status, payload)
select n %% %s, 'step', public.payload(n %% %s) from generate_series(1, %s) as n
returning id, order_id::text, left(encode(sha256(payload), 'hex'), 16)"""

CONFIG = """
database: "{database}"
{top}
sinks:
  out: {{ {sink} }}
queues:
  shop:
    table: public.events
    columns: {{ id: id, key: order_id, type: status, payload: payload, created_at: created_at }}
    sink: out
"""


class Shop:
    """Shop(db, orders=5000) creates the tables. Orders are 1 to `orders`; some events belong to none."""

    def __init__(self, db, orders=5000):
        self.db = db
        self.orders = orders
        self.journal = []  # Event of every row, with what became of it; the last one of an id counts
        self.committed = []  # those of which it is known
        self._lock = threading.Lock()
        db.psql(SCHEMA)
        db.let_relay_in("public.events")
        db.query("insert into public.orders select generate_series(1, %s)", (orders,))

    def _note(self, rows, outcome):
        events = [Event(event_id, key, outcome, payload_hash) for event_id, key, payload_hash in rows]
        with self._lock:
            self.journal.extend(events)
            if outcome == "yes":
                self.committed.extend(events)
        return events

    def insert(self, keys, connection=None, commit=True):
        """Commits one event for each of the keys, None for an event without one, and returns them; commit=False rolls
        them back. An error in between leaves them in the journal as what they are: nobody knows."""
        own = connection or self.db.connect()
        try:
            with own.cursor() as cursor:
                cursor.execute("begin")
                cursor.execute("select * from public.produce(%s::bigint[])", (list(keys),))
                rows = cursor.fetchall()
                self._note(rows, "unknown")
                cursor.execute("commit" if commit else "rollback")
                return self._note(rows, "yes" if commit else "no")
        finally:
            if own is not connection:
                own.close()

    def add(self, events, keys):
        """`events` rows over `keys` orders, one transaction; the rows of an order are spread over the whole."""
        return self._note(self.db.query(ADD, (keys, keys, events)), "yes")

    def choose(self, rng, count):
        """Keys at random: mostly any order, one in twenty the hot one, one in fifty none at all."""
        draws = [rng.random() for _ in range(count)]
        return [HOT_ORDER if draw < 0.05 else None if draw < 0.07 else rng.randint(1, self.orders) for draw in draws]

    def _producer(self, seed, commits, events_per_commit):
        rng = random.Random(seed)
        connection = self.db.connect()
        for _ in range(commits):
            self.insert(self.choose(rng, events_per_commit), connection)
            if rng.random() < 0.1:
                self.insert(self.choose(rng, events_per_commit), connection, commit=False)
        connection.close()

    def produce(self, events, producers=8, seed=1, events_per_commit=25):
        """`events` events by concurrent producers, and some that are rolled back; returns when all are committed."""
        commits = events // producers // events_per_commit
        with ThreadPoolExecutor(producers) as pool:
            running = [pool.submit(self._producer, seed * 1000 + n, commits, events_per_commit) for n in range(producers)]
        for one in running:
            one.result()

    def config(self, sink, application_name="pgcourier", top="", database=None, **queue):
        """sink: the inside of a YAML mapping. top: more lines at the top level. queue: its other settings, as YAML text.
        database: else the relay's own login, which has the rights of outbox_relay and no more."""
        database = database or f"{self.db.dsn} application_name={application_name}"
        lines = [f"    {name}: {value}\n" for name, value in queue.items()]
        return CONFIG.format(database=database, sink=sink, top=top) + "".join(lines)

    def left(self):
        return self.db.value("select count(*) from public.events")

    def settled(self):
        """How many of the committed events have left the table."""
        left = self.left()
        return len(self.committed) - left

    def attempts(self):
        """Failures on record; none of them was an event's own fault when this is 0."""
        return self.db.value("select coalesce(sum(attempts), 0) from outbox.parked") + \
            self.db.value("select count(*) from outbox.dead")

    def final(self, archived=False):
        """What the database holds now, for the history check; archived: the queue archives what it delivers."""
        left, dead, archive = (
            [row[0] for row in self.db.query(f"select {column} from {table}")]
            for column, table in (("id", "public.events"), ("event_id", "outbox.dead"), ("event_id", "outbox.archive")))
        parked = self.db.query("select event_id, case when keyless then null else key end, next_at = 'infinity' from outbox.parked")
        return Final(left, dead, archive if archived else None, [Parked(*row) for row in parked])

    def check(self, receipts, faults=(), archived=False, **options):
        """The history check on all that was produced so far; raises its report, or returns the verdict."""
        return check(self.journal, receipts, faults, self.final(archived), **options).require()
