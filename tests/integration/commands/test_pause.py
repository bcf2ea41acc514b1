"""A queue or a key that is paused stands still within a second, for every relay, and goes on in order."""

import itertools
import threading
import time

import pytest

from tests.support.history import Event, Final, Receipt, check
from tests.support.journal import read_lines
from tests.support.servers import Reply, wait_until
from tests.support.targets import http_receipts

CONFIG = """
database: "{dsn}"
stats_interval: 100ms
sinks:
  log: {{ type: file, path: "{out}" }}
queues:
  orders: {{ table: public.events, columns: {{ key: order_id }}, sink: log, destination: "orders"{more} }}
"""
TABLE = ("create table public.events (id bigserial primary key, order_id bigint); create index on public.events (order_id, id)")
LOCKS = "select count(*) from pg_locks where locktype = 'advisory' and objsubid = 2"
LOOKED = ("select max(query_start)::text from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
          " and query like '%outbox.paused p%'")
OBEYED_S = 1.0
WATCHED_S = 2.0
TURNS = 3  # lines of statistics of each relay: it had its chance to go on
KEYS = 5


class Lines:
    """What has been delivered, read on and on. All relays append to one file, so that it has the order."""

    def __init__(self, path):
        self.path = path

    def ids(self, key=None):
        return [event["id"] for event in (read_lines(self.path) if self.path.exists() else []) if key is None or event["key"] == str(key)]


class Lateness(threading.Thread):
    """How late the machine is with what it should do at once: wake somebody up, and have the database say something."""

    def __init__(self, db):
        super().__init__()
        self.db, self._late_s, self._over = db, 0.0, threading.Event()

    def run(self):
        connection = self.db.connect()
        with connection.cursor() as cursor:
            over = False
            while not over:
                began = time.monotonic()
                over = self._over.wait(0.02)
                cursor.execute("select")
                self._late_s = max(self._late_s, time.monotonic() - began - 0.02)
        connection.close()

    def allows(self):
        """A relay needs both twice: for its look, and to end what it was about."""
        return OBEYED_S + 2 * self._late_s

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self.join()


def just_after_a_look(db):
    """The worst moment for an order."""
    before = db.value(LOOKED)
    wait_until(lambda: db.value(LOOKED) != before, what="a relay to look for pauses")


def stands_still_after(db, relays, order, deliveries):
    """Nothing more is delivered from a second after the order on, while others insert. deliveries() is a list of them."""
    with Lateness(db) as machine:
        just_after_a_look(db)
        began = ended = time.monotonic()
        order()
        before = deliveries()
        told = [len(one.logged("queue.stats")) + TURNS for one in relays]
        while time.monotonic() < began + WATCHED_S or any(len(one.logged("queue.stats")) < lines for one, lines in zip(relays, told)):
            if (now := deliveries()) != before:
                before, ended = now, time.monotonic()
            time.sleep(0.01)
    print(f"stood still after {ended - began:.2f} s of {machine.allows():.2f}")
    assert ended - began < machine.allows(), f"it went on for {ended - began:.2f} s"


def goes_on_after(db, relays, order, deliveries):
    with Lateness(db) as machine:
        just_after_a_look(db)
        before, began = deliveries(), time.monotonic()
        order()
        wait_until(lambda: deliveries() != before, what="deliveries to go on")
        wait_until(lambda: all(one.logged("queue.resumed") for one in relays), what="all relays to go on")
        took = time.monotonic() - began
    print(f"went on after {took:.2f} s of {machine.allows():.2f}")
    assert took < machine.allows(), f"it went on after {took:.2f} s"


class Producer(threading.Thread):
    """Inserts events of KEYS keys in turn, all the time."""

    def __init__(self, db):
        super().__init__()
        self.db, self.events, self._over = db, [], threading.Event()

    def run(self):
        connection = self.db.connect()
        with connection.cursor() as cursor:
            for n in itertools.count():
                if self._over.wait(0.002):
                    break
                cursor.execute("insert into public.events (order_id) values (%s) returning id", (n % KEYS,))
                self.events.append(Event(cursor.fetchone()[0], str(n % KEYS)))
        connection.close()

    def stop(self):
        self._over.set()
        self.join()


@pytest.fixture
def producer(db):
    db.psql(TABLE)
    db.let_relay_in("public.events")
    one = Producer(db)
    one.start()
    yield one
    one.stop()


@pytest.fixture
def two_relays(db, relay, producer, tmp_path):
    lines = Lines(tmp_path / "out.jsonl")
    relays = [relay(CONFIG.format(dsn=db.dsn, out=lines.path, more="")) for _ in range(2)]
    wait_until(lambda: len(lines.ids()) > 200, what="both to be at work")
    return lines, relays


def drained(db, relays, producer, lines):
    """Each event was delivered once, and those of a key in order, whatever stood still meanwhile."""
    producer.stop()
    wait_until(lambda: db.value("select not exists (select from public.events)"), 60, "everything to be delivered")
    assert [one.stop() for one in relays] == [0, 0]
    check(producer.events, [Receipt(line["id"], line["key"]) for line in read_lines(lines.path)], final=Final()).require()


def test_a_paused_queue_stands_still_within_a_second_and_goes_on_within_one(db, two_relays, producer):
    lines, relays = two_relays
    stands_still_after(db, relays, lambda: db.query("select outbox.pause('orders', reason => 'the receiver moves')"), lines.ids)
    assert db.value(LOCKS) == 0, "nothing is held"
    assert [len(one.logged('msg=queue.paused queue=orders by=postgres reason="the receiver moves"')) for one in relays] == [1, 1]
    goes_on_after(db, relays, lambda: db.query("select outbox.resume('orders')"), lines.ids)
    assert [len(one.logged("queue.resumed")) for one in relays] == [1, 1]
    drained(db, relays, producer, lines)


def test_a_paused_key_stands_still_within_a_second_and_keeps_its_order(db, two_relays, producer):
    lines, relays = two_relays
    stands_still_after(db, relays, lambda: db.query("select outbox.pause('orders', '3')"), lambda: lines.ids(key=3))
    count = len(lines.ids())
    wait_until(lambda: len(lines.ids()) > count + 100, what="the other keys to go on")
    assert db.query("select keys, closed, paused from outbox.status_parked") == [(1, 0, 1)]
    db.query("select outbox.resume('orders', '3')")
    drained(db, relays, producer, lines)
    assert db.value("select count(*) from outbox.parked") == 0


def sent(http, key=None):
    return [event["id"] for event in (request.json() for request in list(http.requests)) if key in (None, event["order_id"])]


def test_what_is_claimed_and_not_sent_is_given_back_when_its_queue_is_paused(db, relay, http):
    """One slow delivery after the other, 64 of a key in one claim: only the one under way may end."""
    db.psql(TABLE)
    db.let_relay_in("public.events")
    http.respond = lambda request: Reply(200, delay_s=0.3)
    config = CONFIG.replace('type: file, path: "{out}"', 'type: http, url: "{out}"')
    one = relay(config.format(dsn=db.dsn, out=http.url, more=""))
    db.query("insert into public.events (order_id) select 1 + n % 2 from generate_series(1, 80) n")
    wait_until(lambda: len(http.requests) >= 4, what="deliveries")
    stands_still_after(db, [one], lambda: db.query("select outbox.pause('orders', '1')"), lambda: sent(http, key=1))
    others = len(http.requests)
    wait_until(lambda: len(http.requests) > others + 2, what="the other key to go on")
    stands_still_after(db, [one], lambda: db.query("select outbox.pause('orders')"), lambda: sent(http))
    count = len(http.requests)
    assert db.value(LOCKS) == 0
    assert db.value("select count(*) from public.events") == 80 - count
    assert one.stop() == 0 and len(http.requests) == count
    left = [row[0] for row in db.query("select id from public.events")]
    check([Event(n, str(1 + n % 2)) for n in range(1, 81)], http_receipts(http), final=Final(left), drained=False).require()


def test_a_relay_that_starts_on_a_paused_queue_claims_nothing(db, relay, tmp_path):
    db.psql(TABLE)
    db.let_relay_in("public.events")
    db.query("select outbox.pause('orders', is_new => true); insert into public.events (order_id) values (1)")
    out = tmp_path / "out.jsonl"
    one = relay(CONFIG.format(dsn=db.dsn, out=out, more=""), until_empty=True)
    assert one.wait() == 0, "a paused queue has nothing to do"
    assert Lines(out).ids() == []
    assert one.logged("queue.stats.* claims=0 ")
