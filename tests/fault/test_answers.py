"""Answers of sinks that come late, half, or wrong: what may have been taken is sent again, under the same name and in order;
what was refused for no fault of the event's costs it no attempt."""

import os

import pytest

from tests.support.fake_redis import Answer, FakeRedis, FakeRedisTarget
from tests.support.fault_run import FaultRun
from tests.support.http_receiver import CLOSE, HALF, Reply
from tests.support.proxy import DOWN, UP, Proxy
from tests.support.shop import Shop
from tests.support.targets import HttpTarget

DEEP = os.environ.get("PGCOURIER_DEEP") == "1"
KEYS = 20


def once_each(chosen):
    """A function of an id: True for each of the chosen the first time it is asked."""
    waiting = set(chosen)

    def first_time(event_id):
        asked = event_id in waiting
        waiting.discard(event_id)
        return asked

    return first_time


# ---- HTTP ----

def never_overtaken(requests, event, keys):
    """No later event of its key was sent before it was sent again."""
    of_key = [int(request.headers["event-id"]) for request in requests if keys[int(request.headers["event-id"])] == keys[event]]
    at = of_key.index(event)
    return of_key[at + 1] == event


@pytest.mark.parametrize("reply", [Reply(200, delay_s=3600), Reply(200, action=HALF), Reply(502)],
                         ids=["late", "half", "gateway"])
def test_an_answer_that_says_nothing_is_sent_again_before_the_next_of_its_key(relay, db, http, reply):
    run = FaultRun(relay, Shop(db), HttpTarget(http))
    events = run.add(200, keys=KEYS)
    chosen = [event.id for event in events[3:200:23]]
    first_time = once_each(chosen)
    http.rule(lambda request: first_time(int(request.headers["event-id"])), reply)
    run.fault("an answer that says nothing", in_flight=1, times=2 * len(chosen))  # others may be late on a busy machine
    run.start(sink={"timeout": "4s", "connect_timeout": "4s"}, retry="{ base: 50ms, max: 200ms }")
    run.wait_until_empty()
    run.finish()
    assert len(http.requests) >= len(events) + len(chosen)
    keys = {event.id: event.key for event in events}
    assert all(never_overtaken(http.requests, event, keys) for event in chosen)
    for event in chosen:
        assert len({request.headers["webhook-id"] for request in http.requests
                    if request.headers["event-id"] == str(event)}) == 1, "it came under two names"


def test_an_exchange_may_break_at_any_byte(relay, db, http):
    """Of the request or of the answer; a proxy ends the connection there. Several do at a time, because each time is followed
    by a pause."""
    with Proxy(http.port) as proxy:
        run = FaultRun(relay, Shop(db), HttpTarget(http))
        at_a_time = 8
        run.start(sink={"url": f"http://127.0.0.1:{proxy.port}/in", "connections": at_a_time},
                  retry="{ base: 20ms, max: 50ms, attempts: 1000 }", connections=1)
        run.add(1, keys=1)
        run.wait_until_empty()
        whole = proxy.passed(0)
        cuts = [(direction, size) for direction in (UP, DOWN)
                for size in range(0, whole[direction], 1 if DEEP else whole[direction] // 12)]
        while cuts:
            run.fault("a broken exchange", in_flight=1, times=at_a_time)
            traps = [proxy.cut_after(size, direction) for direction, size in cuts[:at_a_time]]
            proxy.cut()
            run.add(6 * at_a_time, keys=2 * at_a_time)
            run.wait_until_empty()
            assert all(trap.sprung for trap in traps), f"of {whole}, not all of these were an end: {traps}"
            del cuts[:at_a_time]
        run.finish()


# What each means is told by the receipts: refused for good, to be tried again, or no fault of the event's.
STATUSES = [201, 204, 206, 226, 300, 301, 302, 304, 307, 308, 400, 402, 406, 409, 411, 413, 418, 422, 423, 429, 451, 499,
            500, 501, 503, 505, 599]


def test_answers_of_any_status_lose_nothing_and_keep_the_order(relay, db, http):
    """Each of them once, for the first event of a key of its own."""
    run = FaultRun(relay, Shop(db), HttpTarget(http))
    events = run.shop.insert(range(1, len(STATUSES) + 1))
    run.shop.insert([*range(1, len(STATUSES) + 1)] * 3)
    statuses = {str(event.id): status for event, status in zip(events, STATUSES)}
    http.rule(lambda request: request.headers["event-id"] in statuses,
              lambda request: Reply(statuses.pop(request.headers["event-id"])))
    run.start(retry="{ base: 20ms, max: 50ms }")
    assert run.finish() == 0
    assert statuses == {}
    by_answer = {answer: {STATUSES[receipt.id - events[0].id] for receipt in run.target.receipts() if receipt.answer == answer}
                 for answer in ("away", "reject")}
    assert by_answer["away"] == {429, 503}
    dead = {STATUSES[event_id - events[0].id] for (event_id,) in db.query("select event_id from outbox.dead")}
    assert dead == by_answer["reject"]


def test_connections_that_the_receiver_ends_after_an_answer_cost_nothing(relay, db, http):
    """It does not say so, and the next request may be on its way."""
    run = FaultRun(relay, Shop(db), HttpTarget(http))
    http.respond = lambda request: Reply(action=CLOSE) if request.number % 5 == 4 else None
    run.add(500, keys=KEYS)
    run.start(sink={"connections": 4})
    assert run.finish() == 0
    run.no_failures()
    assert http.connections_opened >= 500 // 5


# ---- Redis ----

REFUSALS = [
    b"-LOADING Redis is loading the dataset in memory\r\n",
    b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
    b"-READONLY You can't write against a read only replica.\r\n",
    b"-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n",
    b"-CLUSTERDOWN The cluster is down\r\n",
    b"-MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.\r\n",
    b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
]

MISTAKES = [
    b"-MOVED 3999 127.0.0.1:6381\r\n",
    b"-ASK 3999 127.0.0.1:6381\r\n",
    b"-NOAUTH Authentication required.\r\n",
    b"-NOPERM this user has no permissions to run the 'xadd' command\r\n",
    b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
    b"-ERR unknown command 'XADD', with args beginning with: 'orders'\r\n",
]

UNCERTAIN = {
    "no answer": Answer(b"", close=True),
    "half an answer": Answer(b"$3\r\n0-", close=True),
    "no Redis": Answer(b"HTTP/1.1 200 OK\r\n\r\n"),
    "an endless bulk": Answer(b"$2000000000\r\nxxxx"),
    "a late answer": Answer(delay_s=5),
}


@pytest.fixture
def redis_run(relay, db):
    with FakeRedis() as server:
        yield FaultRun(relay, Shop(db), FakeRedisTarget(server)), server


@pytest.mark.parametrize("replies", [REFUSALS, MISTAKES], ids=["refusals", "mistakes"])
def test_a_redis_that_cannot_serve_costs_no_attempt_and_no_duplicate(redis_run, replies):
    """Nor does one that is set up wrongly and mended."""
    run, server = redis_run
    refusals = list(replies)

    def answer(_command):
        return Answer(refusals.pop(), taken=False) if run.target.count() >= 100 and refusals else None

    server.answer = answer
    run.add(300, keys=KEYS)
    run.start(sink={"max_in_flight": 4})
    assert run.finish() == 0
    assert refusals == []
    run.no_failures()


@pytest.mark.parametrize("way", UNCERTAIN)
def test_a_redis_answer_that_says_nothing_is_sent_again_in_order(redis_run, way):
    run, server = redis_run
    in_flight = 4
    events = run.add(300, keys=KEYS)
    chosen = [event.id for event in events[10:300:150]]
    first_time = once_each(chosen)
    server.answer = lambda command: UNCERTAIN[way] if first_time(int(command[command.index(b"id") + 1])) else None
    run.fault(way, in_flight, times=3 * len(chosen))  # others may be late on a busy machine
    run.start(sink={"max_in_flight": in_flight, "timeout": "2s"}, retry="{ base: 50ms, max: 200ms }")
    run.wait_until_empty()
    assert run.finish() >= len(chosen)
