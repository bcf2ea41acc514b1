"""A sink is gone for a while in mid-drain, or there and of no use: no attempt is consumed, no transaction stays open,
memory stays flat, and the rest is delivered soon after it is back. 7 s away by default, 20 s with PGCOURIER_DEEP=1."""

import os
import subprocess
import time

import pytest

from tests.support.orders import Orders, deliveries_of
from tests.support.http_receiver import HANG
from tests.support.relay import binary
from tests.support.servers import Reply, wait_until

AWAY_S = 20 if os.environ.get("PGCOURIER_DEEP") == "1" else 7
DETECT_S = 5  # until then a claim may still wait for answers
BACK_S = 5  # and the time that the drain takes without an outage
EVENTS = 3000
KEYS = 300
MEGABYTE = 1 << 20

OPEN_TRANSACTIONS = """
select extract(epoch from clock_timestamp() - xact_start) from pg_stat_activity
where application_name = 'pgcourier' and datname = current_database() and xact_start is not null"""


class Outage:
    """A relay in mid-drain, its sink taken away and given back, and what was seen meanwhile."""

    def __init__(self, one, orders):
        self.one, self.orders = one, orders
        self.longest_s = 0.0

    def watch(self, seconds):
        """Samples for so long: the age of the oldest open transaction; the failures on record stay none."""
        connection = self.orders.db.connect()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            # Each sample in a transaction of its own, so not in `with connection`: the first look at pg_stat_activity
            # is what a transaction sees to its end.
            with connection.cursor() as cursor:
                cursor.execute(OPEN_TRANSACTIONS)
                self.longest_s = max([self.longest_s, *(float(age) for (age,) in cursor)])
            time.sleep(0.05)
        connection.close()

    def drain(self):
        """Returns how long it took until the table was empty."""
        started = time.monotonic()
        wait_until(lambda: self.orders.left() == 0, 60, "the rest to be delivered")
        return time.monotonic() - started

    def sit_out(self, go, come, trial_s=0):
        """go() takes the sink away, come() brings it back. A trial delivery may keep its transaction for trial_s."""
        wait_until(lambda: self.orders.left() < EVENTS * 0.9, 30, "the drain to be under way")
        go()
        self.orders.add(EVENTS, KEYS)
        time.sleep(DETECT_S)
        before = self.one.rss()
        self.watch(AWAY_S - DETECT_S)
        assert self.one.rss() - before < 2 * MEGABYTE
        assert self.longest_s < trial_s + 1, "a transaction stayed open while the sink was away"
        left = self.orders.left()
        assert left > EVENTS, "the sink was not away, or what it did not take was deleted"
        come()
        took = self.drain()
        grew = (self.one.rss() - before) // 1024
        self.orders.add(left, KEYS)
        usual = self.drain()
        print(f"{left} events left, drained {took:.2f} s after the sink's return, usually {usual:.2f} s; longest transaction"
              f" {self.longest_s:.2f} s, memory {before // 1024} kB, grew {grew} kB")
        assert took < BACK_S + 2 * usual
        assert not self.one.logged(r"delivery\.retry|delivery\.dead|key\.closed"), "the outage was counted as the events' fault"
        assert self.orders.attempts() == 0
        assert self.one.logged("sink.down") and self.one.logged("sink.up")
        assert self.one.stop() == 0
        return left


@pytest.fixture
def outage(relay, db):
    orders = Orders(db)

    def start(sink, **config):
        orders.add(EVENTS, KEYS)
        # A sanitizer's quarantine grows with every allocation: memory is measured without one.
        return Outage(relay(orders.config(sink, max_events_per_key=1, **config), program=binary(["release"])), orders)

    return start


def ids_of_stream(redis, name):
    with redis.client() as client:
        return [int(fields[b"id"]) for _, fields in client.xrange(name)]


@pytest.mark.parametrize("way", ["killed", "paused"])
def test_redis(outage, redis, way):
    watched = outage(f'{{ type: redis, url: "{redis.url}", timeout: 1s, max_in_flight: 8 }}', destination="events")
    if way == "paused":
        left = watched.sit_out(redis.pause, redis.resume)
        assert set(ids_of_stream(redis, "events")) == set(range(1, 2 * EVENTS + left + 1))
    else:
        watched.sit_out(redis.kill, redis.start)


HTTP = '{{ type: http, url: "{}", timeout: 1s, connect_timeout: 1s, max_in_flight: 64 }}'


def ids_of(requests):
    return [int(request.headers["webhook-id"].rsplit("-", 1)[-1]) for request in requests]


def test_http(outage, http):
    left = outage(HTTP.format(http.url)).sit_out(http.stop, http.start)
    assert set(ids_of(http.requests)) == set(range(1, 2 * EVENTS + left + 1))


class UselessReceiver:
    """Takes requests all the time, and no event between turn() and turn_back()."""

    def __init__(self, http):
        self.http, self.turned_down = http, set()

    def turn(self, reply):
        def respond(request):
            self.turned_down.add(request.number)
            return reply

        self.http.respond = respond

    def turn_back(self):
        self.http.respond = None

    def accepted(self):
        return ids_of(request for request in self.http.requests if request.number not in self.turned_down)


def test_http_that_refuses_everything(outage, http):
    """It goes on answering what it had accepted, for a while, and refuses what is new at once."""
    receiver = UselessReceiver(http)
    http.respond = lambda request: Reply(200, delay_s=0.05)
    left = outage(HTTP.format(http.url)).sit_out(lambda: receiver.turn(Reply(503)), receiver.turn_back)
    assert sorted(receiver.accepted()) == list(range(1, 2 * EVENTS + left + 1)), "lost, or twice without need"
    # One at a time, and less and less often: the waits are 1 s on average in the end.
    assert 0 < len(receiver.turned_down) < 64 + 30 * AWAY_S


def test_http_that_never_answers(outage, http):
    receiver = UselessReceiver(http)
    left = outage(HTTP.format(http.url)).sit_out(lambda: receiver.turn(Reply(action=HANG)), receiver.turn_back, trial_s=1)
    assert set(receiver.accepted()) == set(range(1, 2 * EVENTS + left + 1))


@pytest.mark.parametrize("way", ["killed", "paused"])
def test_kafka(outage, kafka, topic, way):
    watched = outage(f'{{ type: kafka, properties: {{ bootstrap.servers: "{kafka.bootstrap}" }}, max_in_flight: 64 }}',
                     destination=topic)
    go, come = (kafka.kill, kafka.start) if way == "killed" else (kafka.pause, kafka.resume)
    left = watched.sit_out(go, come)
    values = [record.json()["id"] for record in kafka.consume(topic)]
    assert set(values) == set(range(1, 2 * EVENTS + left + 1))


def test_a_full_disk(outage, tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", folder], capture_output=True, check=False).returncode:
        pytest.skip("needs to mount a file system")
    try:
        watched = outage(f'{{ type: file, path: "{folder}/out", sync: no, max_in_flight: 4 }}')
        left = watched.sit_out(lambda: None, lambda: subprocess.run(["mount", "-o", "remount,size=64m", folder], check=True))
        assert {event_id for _, event_id in deliveries_of(folder / "out")} == set(range(1, 2 * EVENTS + left + 1))
    finally:
        subprocess.run(["umount", "-l", folder], check=False)
