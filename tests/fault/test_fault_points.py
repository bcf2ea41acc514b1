"""Every fault point of the relay, with every action, at its first, second and third hit: two relays of two connections
each drain a table, one of them is made to fail, and the history has to be right.

A default run takes one action and hit of each point; --deep takes all of them."""

import itertools
import pathlib
import random
import re
import signal
import subprocess
import time
import zlib

import pytest

from tests.support import targets
from tests.support.history import Fault
from tests.support.journal import read_lines
from tests.support.process import free_port, stands_still, wait_until
from tests.support.relay import binary, environment
from tests.support.servers import Reply
from tests.support.shop import Shop

ROOT = pathlib.Path(__file__).parents[2]
EVENTS, ORDERS = 720, 24  # many times as many as a fault may repeat
SLOW_ORDER, REFUSED_ORDER = 5, 7
SLOW_S = 0.06  # more than a claim waits for its last keys
LEASED_S = 0.2  # two of them are more than the third of a lease
CONNECTIONS, KEYS, PER_KEY = 2, 4, 2
IN_FLIGHT = CONNECTIONS * KEYS * PER_KEY * 4  # a claim that a slow delivery keeps open may take four times as many keys
LEFT_BEHIND_S = 5  # what a fault has left behind has arrived by then
ENDED_BY_ITSELF = {69, 75}  # what supervisors start again

# Faults that have to be done before these points are come to, or come to again.
LOST = ",".join(f"claim.sent:{hit}:drop" for hit in range(4, 40, 3))
RECONNECTED = "redis.reply:3:drop,redis.reply:20:drop"
ACKED_AND_LOST = ",".join(f"settle.collect:{hit}:drop" for hit in range(2, 14, 2))
LEADS = {"claim.lost": LOST, "side.lost": LOST, "side.settle": ACKED_AND_LOST, "settle.abort": ACKED_AND_LOST,
         "redis.open": RECONNECTED, "redis.shake": RECONNECTED,
         "kafka.retire": "kafka.serve:30:error", "kafka.renew": "kafka.serve:30:error"}
# Come to while the table is locked and statements run into their time limit;
LOCKED = {"claim.failed", "claim.rollback"}
# while the receiver is away;
AWAY = {"circuit.open", "circuit.probe", "deliver.stop"}
# and some deliveries of a claim are still waiting for their turn;
CROWDED = {"deliver.stop"}
# where keys are leased, of one of them when somebody takes the leases away;
LEASED = {"claim.lease", "lease.lost", "side.renew"}
TAKEN = {"lease.lost"}
TAKE = "update outbox.parked set token = null, next_at = clock_timestamp() where token is not null returning 1"
# with requests that are signed
SIGNED = {"http.sign"}
SECRET = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
# in a queue that has nothing to do for a while
RESTED = {"rest.check", "rest.until", "rest.wakes", "waking.sent"}
IDLE_S = 2  # so long at least, before it gets more
# and on SIGHUP.
RELOADED = {"relay.stop", "relay.close", "relay.reopen", "file.open"}

# Not three times in a process, or only by luck.
HITS = {"relay.stop": 1, "kafka.retire": 1, "kafka.renew": 1, "settle.abort": 2, "side.settle": 2}


def points():
    """{name: whether it can be told to fail}, from the sources."""
    found = {}
    for folder in ("relay", "ordering", "sinks"):
        for path in sorted((ROOT / folder).rglob("*.c")):
            if path.parent.name == "base":  # allocations: test_allocations.py refuses each
                continue
            for kind, name in re.findall(r'FAULT_(POINT|ERROR)\("([^"]+)"\)', path.read_text()):
                assert name not in found, f"two points are called {name}"
                found[name] = kind == "ERROR"
    return found


def sweep():
    """(point, action, hit); the first of each point by default, in an order that a point's name decides."""
    for name, can_fail in points().items():
        hits = range(1, HITS.get(name, 3) + 1)
        faults = list(itertools.product(["kill", "stop", "drop", *(["error"] if can_fail else [])], hits))
        random.Random(zlib.crc32(name.encode())).shuffle(faults)
        for place, (action, hit) in enumerate(faults):
            yield pytest.param(name, action, hit, marks=[pytest.mark.deep] if place else [])


class Victim:
    """The relay that fails, and its successors. config: a function of a relay's name."""

    name = "victim"

    def __init__(self, start, config, faults, log):
        self.start, self.config, self.log = start, config, log
        self.continued = False
        env = {"PGCOURIER_FAULT": faults, "PGCOURIER_FAULT_LOG": str(log)}
        self.relays = [start(config(self.name), env=env, program=binary(["dev"]))]

    def takes_signals(self):
        return self.relays[-1].logged("relay.start")

    def reached(self, point):
        return any(fault["point"] == point for fault in self.faults())

    def reload(self, broken=False):
        if self.takes_signals():
            self.relays[-1].configure("broken" if broken else self.config(self.name))
            self.relays[-1].send(signal.SIGHUP)

    def faults(self):
        """What has been done to it, in order."""
        return list(read_lines(self.log)) if self.log.exists() else []

    def fell(self, action):
        """Whether a fault that was written down has been carried out."""
        if action == "kill":
            return self.relays[0].exit_code is not None
        return action != "stop" or self.continued or stands_still(self.relays[0].pid)

    def look_after(self):
        """Continues it when it was stopped, and starts another when it has ended."""
        one = self.relays[-1]
        if one.exit_code is None and stands_still(one.pid):
            one.send(signal.SIGCONT)
            self.continued = True
        if one.exit_code is None:
            return
        assert one.exit_code == -signal.SIGKILL or one.exit_code in ENDED_BY_ITSELF, f"it ended with {one.exit_code}"
        self.name = f"successor-{len(self.relays)}"
        self.relays.append(self.start(self.config(self.name)))


def is_locked(db):
    return db.value("select exists (select from pg_locks where relation = 'public.events'::regclass and mode = 'AccessExclusiveLock' and granted)")


def target_of(point, request, tmp_path):
    sink = point.split(".")[0]
    if sink == "file":
        return targets.FileTarget(tmp_path / "events.jsonl")
    if sink == "exec":
        return targets.ExecTarget(tmp_path / "events.jsonl")
    if sink == "redis":
        return targets.RedisTarget(request.getfixturevalue("redis"), timed=True)
    if sink == "kafka":
        broker, topic = request.getfixturevalue("kafka"), f"points-{free_port()}"
        broker.create_topic(topic, 12, message_timestamp_type="LogAppendTime")
        return targets.KafkaTarget(broker, topic, timed=True)
    target = targets.HttpTarget(request.getfixturevalue("http"))
    target.receiver.rule(lambda one: one.headers.get("event-key") == str(SLOW_ORDER), Reply(delay_s=LEASED_S if point in LEASED else SLOW_S))
    seen = set()  # events of that order are refused once each, so that the victim gets its share
    target.receiver.rule(lambda one: one.headers.get("event-key") == str(REFUSED_ORDER) and one.headers["event-id"] not in seen
                         and not seen.add(one.headers["event-id"]), Reply(500))
    return target


def trouble_for(point, db, target, victim, taken):
    """A generator: each next() makes, or goes on making, the trouble that leads to the point; close() ends it. `taken` gets a
    fault for each lease that was taken away, of whichever relay."""
    while point in LOCKED:  # not for good: a relay that has not learned yet how far the ids go claims nothing
        with db.connect(autocommit=False) as connection:
            connection.cursor().execute("lock table public.events in access exclusive mode")
            yield from for_a_while(4)
        connection.close()
        yield from for_a_while(1)
    while True:
        if point in RELOADED:
            victim.reload(broken=point == "relay.reopen")
        if point in TAKEN:
            at = time.monotonic()
            taken += [Fault("a lease was taken away", PER_KEY, at=at, until=at + LEFT_BEHIND_S) for _ in db.query(TAKE)]
        if point in AWAY:
            yield from outage(target.receiver, victim)
        else:
            yield from itertools.repeat(None, 70)


def for_a_while(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        yield


def outage(receiver, victim):
    """One that the victim, or its successor meanwhile, notices and sees the end of."""
    def told(what):
        return [len(one.logged(what)) for one in victim.relays]

    downs, ups = told("sink.down"), told("sink.up")
    receiver.stop()
    try:
        while told("sink.down") == downs:
            yield
    finally:
        receiver.start()
    while told("sink.up") == ups:
        yield


def explains(done):
    """What may have become uncertain, of the victim and from then on. A drop breaks the connections to the sink and those to
    the database: of an event on its way, libcurl sends the request again, and whoever has its key by then sends it as well.
    Where a machine is slow, a stop outlasts a lease; locks it keeps."""
    stopped = IN_FLIGHT if done["point"] in LEASED else 0
    in_flight = {"stop": [stopped], "drop": [IN_FLIGHT, IN_FLIGHT]}.get(done["action"], [IN_FLIGHT])
    at = done["at"] / 1e6
    return [Fault(f"{done['action']} at {done['point']}", each, Victim.name, at=at, until=at + LEFT_BEHIND_S)
            for each in in_flight]


@pytest.mark.parametrize("fault, log, line", [
    ("claim.snet:1:kill", None, "PGCOURIER_FAULT: no point is called `claim.snet`\n"),
    ("claim.sent:1:error", None, "PGCOURIER_FAULT: the step at `claim.sent` cannot be told to fail\n"),
    ("claim.sent:1:kil", None, "PGCOURIER_FAULT: no action is called `kil`; write kill, stop, drop, error or errors\n"),
    ("claim.sent:1:kill", "/nonexistent/log", "PGCOURIER_FAULT_LOG: /nonexistent/log: No such file or directory\n")])
def test_a_fault_that_could_never_happen_is_refused_at_the_start(fault, log, line):
    env = {"PGCOURIER_FAULT": fault, **({"PGCOURIER_FAULT_LOG": log} if log else {})}
    done = subprocess.run([binary(["dev"]), "--version"], env=environment(env), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (64, "", line)


@pytest.mark.parametrize("point, action, hit", sweep())
def test_the_history_is_right_whatever_fails_wherever(db, relay, request, tmp_path, point, action, hit):
    target = target_of(point, request, tmp_path)
    if isinstance(target, targets.ExecTarget):
        target.may_tear()  # commands are killed with their relay, and when their claim is lost
    shop = Shop(db, orders=ORDERS)
    if point in RESTED:
        db.query("select outbox.install_wake('public.events')")
    if point in LEASED:
        target.queue = target.queue | {"ordering": "lease", "lease": "{ duration: 1s }"}

    def config(name):
        sink = target.sink(relay=name, **({"max_in_flight": 2} if point in CROWDED else {}), **({"secrets": [SECRET]} if point in SIGNED else {}))
        return shop.config(sink, top="statement_timeout: 300ms" if point in LOCKED else "",
                           connections=CONNECTIONS, keys_per_claim=KEYS, max_events_per_key=PER_KEY,
                           retry="{ base: 10ms, max: 50ms, attempts: 1000 }", **target.queue)

    rng = random.Random(zlib.crc32(f"{point} {action} {hit}".encode()))
    for _ in range(4):
        shop.insert(shop.choose(rng, EVENTS // 8))
    faults = ",".join(filter(None, [LEADS.get(point), f"{point}:{hit}:{action}"]))
    victim = Victim(relay, config, faults, tmp_path / "faults")
    other = relay(config("other"), program=binary(["dev"]))
    for _ in range(4):
        shop.insert(shop.choose(rng, EVENTS // 8))

    taken, empty_at = [], None
    trouble = trouble_for(point, db, target, victim, taken)

    def reached():
        nonlocal empty_at
        if victim.reached(point):
            return victim.fell(action)
        victim.look_after()
        if not is_locked(db) and shop.left() == 0:
            empty_at = empty_at or time.monotonic()
            if point not in RESTED or time.monotonic() > empty_at + IDLE_S:
                shop.insert(shop.choose(rng, EVENTS // 8))
                empty_at = None
        next(trouble)
        return False

    def drained():
        victim.look_after()
        return shop.left() == 0

    wait_until(reached, 90, f"{point} to be come to; {faults}")
    trouble.close()
    wait_until(drained, 60, "the table to be empty")
    wait_until(victim.takes_signals, 60, "the successor to be up")
    assert [one.stop() for one in (victim.relays[-1], other)] == [0, 0]
    verdict = shop.check(target.receipts(), taken + [fault for each in victim.faults() for fault in explains(each)], attempts=1000)
    print(f"{verdict.duplicates} of {len(verdict.receipts)} deliveries came again")
