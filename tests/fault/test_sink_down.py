"""A sink is gone for a while in mid-drain, or there and of no use: no attempt is consumed, no transaction stays open,
memory stays flat, and the rest is delivered soon after it is back. It is watched for 2 s by default, 15 s with PGCOURIER_DEEP=1."""

import os
import subprocess
import time

import pytest

from tests.support.history import Fault
from tests.support.http_receiver import HANG
from tests.support.relay import binary
from tests.support.servers import Redis, Reply, wait_until
from tests.support.shop import Shop
from tests.support.targets import FileTarget, HttpTarget, KafkaTarget, RedisTarget

WATCH_S = 15 if os.environ.get("PGCOURIER_DEEP") == "1" else 2
BACK_S = 120  # less than 5 on a machine with nothing else to do; a broker that starts beside other work takes its time
STUCK_S = 2.5  # so old is a transaction that somebody forgot, and not one that the machine had no time for
EVENTS = 3000
KEYS = 300
MEGABYTE = 1 << 20
KEEPS_WHAT_IT_ACKS = {"appendonly": "yes", "appendfsync": "always"}  # a Redis, over its death

OPEN_TRANSACTIONS = """
select extract(epoch from clock_timestamp() - xact_start) from pg_stat_activity
where application_name = 'pgcourier' and datname = current_database() and xact_start is not null"""


class Outage:
    """A relay in mid-drain, its sink taken away and given back, and what was seen meanwhile."""

    def __init__(self, one, shop, target):
        self.one, self.shop, self.target = one, shop, target
        self.longest_s = 0.0
        self.since = {}  # of the outage, for its Fault

    def open_transactions(self):
        """Their ages."""
        return [float(age) for (age,) in self.shop.db.query(OPEN_TRANSACTIONS)]

    def watch(self, seconds):
        """Samples for so long the age of the oldest open transaction."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.longest_s = max([self.longest_s, *self.open_transactions()])
            time.sleep(0.05)

    def sit_out(self, go, come, trial_s=0):
        """go() takes the sink away, come() brings it back. A trial delivery may keep its transaction for trial_s."""
        wait_until(lambda: self.shop.left() < EVENTS * 0.9, 60, "the drain to be under way")
        self.since = {"receipts": self.target.count() or 0, "at": time.monotonic()}
        go()
        self.shop.add(EVENTS, KEYS)
        wait_until(lambda: self.one.logged("sink.down"), 60, "the relay to notice")
        # Until then a claim may still wait for answers.
        wait_until(lambda: not self.open_transactions(), 60, "no transaction to be open")
        before = self.one.rss()
        self.watch(WATCH_S)
        assert self.one.rss() - before < 2 * MEGABYTE
        assert self.longest_s < trial_s + STUCK_S, "a transaction stayed open while the sink was away"
        left = self.shop.left()
        assert left >= EVENTS, "the sink was not away, or what it did not take was deleted"
        come()
        started = time.monotonic()
        wait_until(lambda: self.shop.left() == 0, BACK_S, "the rest to be delivered")
        took, grew = time.monotonic() - started, (self.one.rss() - before) // 1024
        print(f"{left} events left, drained {took:.2f} s after the sink's return; longest transaction {self.longest_s:.2f} s,"
              f" memory {before // 1024} kB, grew {grew} kB")
        assert not self.one.logged(r"delivery\.retry|delivery\.dead|key\.closed"), "the outage was counted as the events' fault"
        assert self.shop.attempts() == 0
        assert self.one.logged("sink.down") and self.one.logged("sink.up")
        assert self.one.stop() == 0

    def check(self, in_flight):
        """What was under way when the sink went may come again, once. A trial of a sink that is away sends no event, and one that
        has no answer is in the receipts for what it was."""
        fault = Fault("the sink is gone", in_flight, **self.since)
        print(self.shop.check(self.target.receipts(), [fault] if in_flight else []).summary())


@pytest.fixture
def outage(relay, db):
    shop = Shop(db)

    def start(target, **sink):
        shop.add(EVENTS, KEYS)
        config = shop.config(target.sink(**sink), max_events_per_key=1, **target.queue)
        # A sanitizer's quarantine grows with every allocation: memory is measured without one.
        return Outage(relay(config, program=binary(["release"])), shop, target)

    return start


@pytest.mark.parametrize("way", ["killed", "paused"])
def test_redis(outage, way):
    with Redis(KEEPS_WHAT_IT_ACKS) as redis:
        watched = outage(RedisTarget(redis, timed=True), timeout="1s", max_in_flight=8)
        watched.sit_out(*((redis.kill, redis.start) if way == "killed" else (redis.pause, redis.resume)))
        watched.check(8)


HTTP = {"timeout": "1s", "connect_timeout": "1s", "max_in_flight": 64}


def test_http(outage, http):
    watched = outage(HttpTarget(http), **HTTP)
    watched.sit_out(http.stop, http.start)
    watched.check(64)


def test_a_probe_that_fails_is_made_again(relay, db, http, tmp_path):
    done = tmp_path / "faults"
    shop, target = Shop(db), HttpTarget(http)
    shop.add(10, 10)
    http.stop()
    one = relay(shop.config(target.sink(**HTTP)), program=binary(["dev"]), env={"PGCOURIER_FAULT": "circuit.probe:1:error", "PGCOURIER_FAULT_LOG": str(done)})
    wait_until(lambda: done.exists() and done.read_text(), 60, "the probe to fail")
    http.start()
    wait_until(lambda: shop.left() == 0, 60, "the table to be empty")
    assert one.stop() == 0
    shop.check(target.receipts())


def test_http_that_refuses_everything(outage, http):
    """It goes on answering what it had accepted, for a while, and refuses what is new at once."""
    http.respond = lambda request: Reply(200, delay_s=0.05)
    watched = outage(HttpTarget(http), **HTTP)

    def refuse():
        http.respond = lambda request: Reply(503)

    def accept():
        http.respond = None

    watched.sit_out(refuse, accept)
    watched.check(0)  # nothing comes twice without need
    refused = sum(request.reply.status == 503 for request in http.requests)
    print(f"{refused} requests were refused")
    assert 0 < refused < EVENTS, "an event was sent again and again"


def test_http_that_never_answers(outage, http):
    watched = outage(HttpTarget(http), **HTTP)

    def hang():
        http.respond = lambda request: Reply(action=HANG)

    def answer():
        http.respond = None

    watched.sit_out(hang, answer, trial_s=1)
    watched.check(64)


@pytest.mark.parametrize("way", ["killed", "paused"])
def test_kafka(outage, kafka, topic, way):
    kafka.create_topic(f"{topic}-timed", 12, message_timestamp_type="LogAppendTime")
    watched = outage(KafkaTarget(kafka, f"{topic}-timed", timed=True), max_in_flight=64)
    go, come = (kafka.kill, kafka.start) if way == "killed" else (kafka.pause, kafka.resume)
    watched.sit_out(go, come)
    watched.check(64)


def test_a_full_disk(outage, tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", folder], capture_output=True, check=False).returncode:
        pytest.skip("needs to mount a file system")
    try:
        watched = outage(FileTarget(folder / "out"), sync=False, max_in_flight=4)
        watched.sit_out(lambda: None, lambda: subprocess.run(["mount", "-o", "remount,size=64m", folder], check=True))
        watched.check(0)  # what did not fit is taken back
    finally:
        subprocess.run(["umount", "-l", folder], check=False)
