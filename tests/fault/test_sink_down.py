"""A sink is gone for a while in mid-drain: no attempt is consumed, no transaction stays open, memory stays flat, and the
rest is delivered soon after it is back. 7 s away by default, 20 s with PGCOURIER_DEEP=1."""

import os
import subprocess
import time

import pytest

from tests.support.orders import Orders, deliveries_of
from tests.support.relay import binary
from tests.support.servers import wait_until

AWAY_S = 20 if os.environ.get("PGCOURIER_DEEP") == "1" else 7
DETECT_S = 5  # until then a claim may still wait for answers
BACK_S = 5
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

    def sit_out(self, go, come):
        """go() takes the sink away, come() brings it back."""
        wait_until(lambda: self.orders.left() < EVENTS * 0.9, 30, "the drain to be under way")
        go()
        self.orders.add(EVENTS, KEYS)
        time.sleep(DETECT_S)
        before = self.one.rss()
        self.watch(AWAY_S - DETECT_S)
        assert self.one.rss() - before < 2 * MEGABYTE
        assert self.longest_s < 1, "a transaction stayed open while the sink was away"
        assert self.orders.attempts() == 0, "the outage was counted as the events' fault"
        left = self.orders.left()
        assert left > EVENTS, "the sink was not away, or what it did not take was deleted"
        come()
        started = time.monotonic()
        wait_until(lambda: self.orders.left() == 0, 30, "the rest to be delivered")
        took = time.monotonic() - started
        grew = (self.one.rss() - before) // 1024
        print(f"{left} events left, drained {took:.2f} s after the sink's return; longest transaction {self.longest_s:.2f} s,"
              f" memory {before // 1024} kB, grew {grew} kB")
        assert took < BACK_S
        assert self.orders.attempts() == 0
        assert self.one.logged("sink.down") and self.one.logged("sink.up")
        assert self.one.stop() == 0


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
        watched.sit_out(redis.pause, redis.resume)
        assert set(ids_of_stream(redis, "events")) == set(range(1, 2 * EVENTS + 1))
    else:
        watched.sit_out(redis.kill, redis.start)


def test_http(outage, http):
    watched = outage(f'{{ type: http, url: "{http.url}", timeout: 1s, connect_timeout: 1s, max_in_flight: 64 }}')
    watched.sit_out(http.stop, http.start)
    numbers = [int(request.headers["webhook-id"].rsplit("-", 1)[-1]) for request in http.requests]
    assert set(numbers) == set(range(1, 2 * EVENTS + 1))


@pytest.mark.parametrize("way", ["killed", "paused"])
def test_kafka(outage, kafka, topic, way):
    watched = outage(f'{{ type: kafka, properties: {{ bootstrap.servers: "{kafka.bootstrap}" }}, max_in_flight: 64 }}',
                     destination=topic)
    if way == "killed":
        watched.sit_out(kafka.kill, kafka.start)
    else:
        watched.sit_out(kafka.pause, kafka.resume)
    values = [record.json()["id"] for record in kafka.consume(topic)]
    assert set(values) == set(range(1, 2 * EVENTS + 1))


def test_a_full_disk(outage, tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", folder], capture_output=True, check=False).returncode:
        pytest.skip("needs to mount a file system")
    try:
        watched = outage(f'{{ type: file, path: "{folder}/out", sync: no, max_in_flight: 4 }}')
        watched.sit_out(lambda: None, lambda: subprocess.run(["mount", "-o", "remount,size=64m", folder], check=True))
        assert {event_id for _, event_id in deliveries_of(folder / "out")} == set(range(1, 2 * EVENTS + 1))
    finally:
        subprocess.run(["umount", "-l", folder], check=False)
