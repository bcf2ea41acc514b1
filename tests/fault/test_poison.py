"""One key among a thousand that its receiver refuses or keeps waiting: only that key waits."""

import json
import random
import re
import time

import pytest

from tests.support.history import Fault
from tests.support.process import wait_until
from tests.support.servers import HANG, Reply, run_command
from tests.support.shop import Shop
from tests.support.targets import HttpTarget

KEYS = 1000
BAD = 500  # the one key
ATTEMPTS = 4
RETRY = f"{{ base: 40ms, max: 160ms, attempts: {ATTEMPTS}, on_exhausted: %s }}"


class Stage:
    """A thousand orders with three events each, a receiver, and relays that deliver to it."""

    def __init__(self, db, relay, http):
        self.db = db
        self.relay = relay
        self.target = HttpTarget(http)
        self.shop = Shop(db, orders=KEYS)
        self.started = []

    def start(self, relays=1, sink=None, **queue):
        for number in range(relays):
            name = f"relay-{number}"
            self.started.append(self.relay(self.shop.config(self.target.sink(relay=name, **(sink or {})), **queue)))
        return self

    def insert_backlog(self):
        keys = [number % KEYS + 1 for number in range(3 * KEYS)]
        self.shop.insert(keys)

    def bad_ids(self):
        return [event.id for event in self.shop.committed if event.key == str(BAD)]

    def waiting_keys(self):
        return {key for key, in self.db.query("select distinct order_id from public.events")}

    def wait_for_the_others(self, timeout_s=60):
        """Until only the bad key has rows, if any."""
        wait_until(lambda: self.waiting_keys() <= {BAD}, timeout_s, "the rows of the other keys to be gone")

    def latencies(self, seconds, per_second=100, seed=1):
        """Commits events of other keys at a steady rate and returns how long each took to arrive: {event: seconds}."""
        rng, committed, connection = random.Random(seed), {}, self.db.connect()
        start = time.monotonic()
        for number in range(int(seconds * per_second)):
            time.sleep(max(0.0, start + number / per_second - time.monotonic()))
            if time.monotonic() > start + seconds:
                break  # a busy machine commits fewer, and not for longer
            key = rng.choice([BAD - 1, BAD + 1, rng.randint(1, BAD - 1), rng.randint(BAD + 1, KEYS)])
            (event,) = self.shop.insert([key], connection)
            committed[event] = time.monotonic()
        connection.close()
        ids = {event.id for event in committed}
        wait_until(lambda: ids <= self.target.received_at().keys(), 60, "all of them to arrive")
        arrived = self.target.received_at()
        return {event: max(0.0, arrived[event.id] - at) for event, at in committed.items()}

    def dead(self, *arguments):
        """By an operator: to put an event back takes INSERT, which a relay does not have."""
        self.db.let_operator_in("public.events")
        path = f"{self.started[0].config_path}.operator"
        with open(path, "w") as file:
            file.write(self.shop.config(self.target.sink(), database=self.db.operator_dsn))
        done = run_command("dead", *arguments, "-c", path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def stop(self):
        assert [one.stop() for one in self.started] == [0] * len(self.started)


@pytest.fixture
def stage(db, relay, http):
    return Stage(db, relay, http)


def summary(name, latencies):
    """Prints and returns p50, p99 and the greatest, in seconds."""
    ordered = sorted(latencies.values())
    figures = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100], ordered[-1]
    print(f"{name}: p50 {figures[0] * 1e3:.1f} ms, p99 {figures[1] * 1e3:.1f} ms, max {figures[2] * 1e3:.1f} ms")
    return figures


def assert_unaffected(latencies, without):
    """Near to what it is without the bad key, and far from what that key waits for, which is seconds."""
    usual, _, worst = summary("without the bad key", without)
    median, p99, _ = summary("with it", latencies)
    late = [f"event {event.id} of key {event.key}: {latency:.3f} s" for event, latency in latencies.items()
            if latency > max(2.0, 2 * worst)]
    assert not late, f"{len(late)} of {len(latencies)} events of other keys were late: {'; '.join(late[:10])}"
    assert p99 < max(1.0, 2 * worst)
    assert median < 2 * usual + 0.05


# What the receiver answers, and how many requests that costs: a refusal needs no second try.
REFUSALS = [(500, ATTEMPTS), (422, 1)]


@pytest.mark.parametrize("status, attempts", REFUSALS)
def test_a_poisonous_key_goes_to_the_dead_letters_and_comes_back_in_order(stage, status, attempts):
    stage.target.refusal = Reply(status)
    stage.target.refused_keys = {str(BAD)}
    stage.insert_backlog()
    stage.start(retry=RETRY % "dead_letter")
    wait_until(lambda: stage.shop.left() == 0, 60, "the table to be empty")
    bad = stage.bad_ids()
    assert stage.target.requests_of(str(BAD)) == [event_id for event_id in bad for _ in range(attempts)]
    assert stage.db.query("select event_id, attempts from outbox.dead order by event_id") == [(e, attempts) for e in bad]
    stage.shop.check(stage.target.receipts(), attempts=attempts)
    assert all(str(status) in row["reason"] for row in json.loads(stage.dead("list", "--json")))

    stage.target.refused_keys = set()
    assert "retried 3 dead letters" in stage.dead("retry", "--key", str(BAD))
    wait_until(lambda: stage.shop.left() == 0, 60, "the retried events to be delivered")
    stage.stop()
    assert stage.target.requests_of(str(BAD))[-3:] == bad
    stage.shop.check(stage.target.receipts(), [Fault("dead retry", revived=bad)])


@pytest.mark.parametrize("status, attempts", REFUSALS)
def test_a_poisonous_key_is_parked_until_it_is_opened_and_then_delivered_in_order(stage, status, attempts):
    stage.target.refusal = Reply(status)
    stage.target.refused_keys = {str(BAD)}
    stage.insert_backlog()
    stage.start(relays=2, retry=RETRY % "park")
    stage.wait_for_the_others()
    closed = "select event_id, attempts from outbox.parked where next_at = 'infinity'"
    wait_until(lambda: stage.db.query(closed), 60, "the key to be closed")
    stage.shop.insert([BAD, BAD - 1, BAD])
    stage.wait_for_the_others()
    bad = stage.bad_ids()
    assert stage.db.query(closed) == [(bad[0], attempts)]
    assert stage.target.requests_of(str(BAD)) == [bad[0]] * attempts
    stage.shop.check(stage.target.receipts(), attempts=attempts)  # only the closed key has anything left

    stage.target.refused_keys = set()
    assert "opened 1 closed key" in stage.dead("retry", "--key", str(BAD))
    wait_until(lambda: stage.shop.left() == 0, 60, "the opened key to be delivered")
    stage.stop()
    assert stage.target.requests_of(str(BAD))[attempts:] == bad
    stage.shop.check(stage.target.receipts())


@pytest.mark.alone
def test_the_other_keys_do_not_notice_a_poisonous_one(stage):
    stage.insert_backlog()
    stage.start(retry="{ base: 2s, max: 2s, attempts: 1000 }")
    stage.wait_for_the_others()
    without = stage.latencies(2)
    stage.target.refused_keys = {str(BAD)}
    stage.shop.insert([BAD, BAD])
    wait_until(lambda: stage.db.value("select max(attempts) from outbox.parked") is not None, 60, "the key to wait")
    assert_unaffected(stage.latencies(3), without)
    stage.target.refused_keys = set()
    wait_until(lambda: stage.shop.left() == 0, 60, "the key to come out of it")
    stage.stop()
    stage.shop.check(stage.target.receipts())


def test_others_are_tried_before_what_looks_like_an_outage(stage):
    """One request at a time, oldest first, and the oldest is answered as if the receiver were overloaded: whether it is
    shows with any other event."""
    stage.target.refusal = Reply(503)
    stage.target.refused_keys = {str(BAD)}
    stage.shop.insert([BAD, *range(1, 51)])
    stage.start(sink={"max_in_flight": 1}, oldest_share=100)
    stage.wait_for_the_others()
    stage.target.refused_keys = set()
    wait_until(lambda: stage.shop.left() == 0, 60, "the refused event to be delivered")
    stage.stop()


def test_retries_count_and_back_off(stage):
    """Attempts go up by one; each wait is below base x 2^(attempt - 1) and below max."""
    stage.target.refused_keys = {str(BAD)}
    (bad, _) = stage.shop.insert([BAD, BAD + 1])
    stage.start(retry="{ base: 40ms, max: 200ms, attempts: 8 }")
    wait_until(lambda: stage.shop.left() == 0, 30, "the event to be given up")
    stage.stop()
    assert stage.target.requests_of(str(BAD)) == [bad.id] * 8
    lines = " ".join(stage.started[0].logged(rf"delivery.retry .*key={BAD} "))
    assert [int(attempt) for attempt in re.findall(r"attempt=(\d+)", lines)] == list(range(1, 8))
    waits = [int(wait) for wait in re.findall(r"wait_ms=(\d+)", lines)]
    assert all(wait <= min(200, 40 * 2 ** number) for number, wait in enumerate(waits)), waits
    assert sum(waits) > 0


# How the slow key's neighbours are spread over claims and relays.
CLAIMS = {
    "all in one claim": (1, {"connections": 1, "keys_per_claim": 1100}),
    "claims as by default, two relays": (2, {}),
    "small claims": (1, {"keys_per_claim": 64}),
}


@pytest.mark.alone
@pytest.mark.parametrize("seconds", [3, pytest.param(18, marks=pytest.mark.deep)])
@pytest.mark.parametrize("spread", CLAIMS)
def test_the_other_keys_do_not_notice_a_slow_one(stage, spread, seconds):
    relays, queue = CLAIMS[spread]
    receiver = stage.target.receiver
    stage.start(relays, sink={"timeout": "300s"}, **queue)
    stage.insert_backlog()
    wait_until(lambda: stage.shop.left() == 0, 60, "the first backlog to be delivered")
    without = stage.latencies(2)

    receiver.rule(lambda request: request.headers.get("event-key") == str(BAD), Reply(action=HANG), times=1)  # until release()
    stage.insert_backlog()
    stage.wait_for_the_others()
    settled_at = time.monotonic()
    delivered_at = max(stage.target.received_at().values())
    latencies = stage.latencies(seconds)
    assert_unaffected(latencies, without)
    assert receiver.in_flight == 1, "the slow request has ended"
    stage.wait_for_the_others()
    print(f"the others' rows were gone {(settled_at - delivered_at) * 1e3:.0f} ms after the last of them arrived")
    receiver.release()
    wait_until(lambda: stage.shop.left() == 0, 60, "the slow key to be delivered")
    stage.stop()
    stage.shop.check(stage.target.receipts())
