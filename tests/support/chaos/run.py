"""A run of relays among producers and faults, from a schedule to the verdict on its history.

    with Chaos(Plan(seed=7, seconds=20, sink="http"), folder) as chaos:
        outcome = chaos.run()
    outcome.require()       # raises with the seed, the schedule, the verdict's report and the ends of the relays' logs
    print(outcome.summary())

Each run has a server of its own, whose commits survive a crash, and so have the sinks, whose acknowledgements do."""

import contextlib
import random
import threading
import time
from collections import defaultdict
from dataclasses import dataclass

import psycopg2

from tests.support.chaos import faults, schedule
from tests.support.chaos.fleet import SINK_IN_FLIGHT, Fleet
from tests.support.chaos.memory_watch import MemoryWatch
from tests.support.chaos.outcome import Outcome
from tests.support.chaos.sinks import open_sink
from tests.support.history import Fault, check
from tests.support.process import wait_until
from tests.support.relay import run_command
from tests.support.servers import Postgres
from tests.support.shop import Shop

ORDERS = 400
BURST = 20  # times as many
LAST_BATCH = 400  # events after the last fault
STUCK_S = 60  # without an event less, after the last fault
LEFT_BEHIND_S = 10  # what a fault has left behind has arrived by then


@dataclass
class Plan:
    seed: int
    seconds: float
    sink: str
    every_s: float = 2.0  # between the faults
    spared: tuple = ()  # relays that are not killed
    events_per_s: int = 200
    program: str = None  # else the usual one, of which memory is not measured: a sanitizer's grows

    def schedule(self):
        return schedule.schedule(self.seed, self.seconds, self.sink, self.every_s, self.spared)


class Note:
    """A fault as it is written down before it is done; its end is known later."""

    def __init__(self, step, in_flight, relay, receipts):
        self.step, self.in_flight, self.relay, self.receipts = step, in_flight, relay, receipts
        self.at, self.until = time.monotonic(), None

    def fault(self):
        return Fault(self.step.kind, self.in_flight, self.relay, None, self.receipts, self.at, self.until)


class Producers:
    """Commit events at a steady rate, now and then many at once, and roll some back, whatever becomes of the server."""

    def __init__(self, shop, seed, events_per_s, count=2, events_per_commit=5):
        self.shop, self.events_per_commit = shop, events_per_commit
        self.pause_s = count * events_per_commit / events_per_s
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._produce, args=(random.Random(seed * 1000 + number),), name="producer")
                         for number in range(count)]

    def _produce(self, rng):
        connection = None
        while not self._over.wait(self.pause_s):
            try:
                connection = connection or self.shop.db.connect()
                burst = BURST if rng.random() < 0.05 else 1
                self.shop.insert(self.shop.choose(rng, self.events_per_commit * burst), connection, commit=rng.random() > 0.1)
            except psycopg2.Error:
                if connection:
                    connection.close()
                connection = None
        if connection:
            connection.close()

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        for thread in self._threads:
            thread.join()


class Chaos:
    """What the kinds of fault act upon: a stage. `sink` is the name of the kind of sink, `peer` its server."""

    def __init__(self, plan, folder):
        self.plan, self.sink, self.folder = plan, plan.sink, folder
        self.steps = plan.schedule()
        self.notes, self.missed, self.errors = [], [], []
        self._closing = contextlib.ExitStack()
        self._holds = defaultdict(threading.Lock)
        self._receipts = 0

    def __enter__(self):
        with contextlib.ExitStack() as opened:
            server = Postgres(settings={"synchronous_commit": "on"})
            server.start_timeout_s = server.stop_timeout_s = 120  # with everything else going on
            opened.enter_context(server)
            self.db = server.create_database()
            done = run_command("migrate", "-d", self.db.owner_dsn)
            assert done.returncode == 0, done.stderr
            self.db.create_logins()
            self.shop = Shop(self.db, orders=ORDERS)
            self.target, self.peer, ways, settings = opened.enter_context(open_sink(self.sink, self.folder))
            self.fleet = opened.enter_context(Fleet(self.shop, self.target, settings, schedule.RELAYS, *ways,
                                                    program=self.plan.program))
            self.memory = opened.enter_context(MemoryWatch(self.fleet))
            self._closing = opened.pop_all()
        return self

    def __exit__(self, *details):
        return self._closing.__exit__(*details)

    # ---- what the kinds of fault call ----

    @contextlib.contextmanager
    def hold(self, *names):
        """Nobody else does anything to these meanwhile. In one order, so that nobody waits in a circle."""
        with contextlib.ExitStack() as held:
            for name in sorted(names):
                held.enter_context(self._holds[name])
            yield

    def note(self, step, in_flight, relay=None):
        with contextlib.suppress(Exception):  # a sink that is away has the receipts it had
            self._receipts = self.target.count() or 0
        note = Note(step, in_flight, relay, self._receipts)
        self.notes.append(note)
        return note

    def wait(self, seconds):
        time.sleep(seconds)

    def miss(self, step, error):
        self.missed.append((step, str(error).splitlines()[0]))

    def over(self, step):
        """Of a fault that goes on, nobody knows yet when its last delivery arrives."""
        for note in self.notes:
            if note.step is step:
                note.until = time.monotonic() + LEFT_BEHIND_S

    # ---- the run ----

    def run(self):
        """Returns the Outcome, whatever it is."""
        wait_until(self._all_run, 120, "the relays to start")
        try:
            self._play()
            self._drain()
            self.shop.add(LAST_BATCH, ORDERS)
            self._drain()
        except (AssertionError, TimeoutError) as error:
            self.errors.append(str(error))
        self._stop()
        return self._judge()

    def _all_run(self):
        self.fleet.look_after()
        return all(place.relay.logged("msg=relay.start") for place in self.fleet.places)

    def _play(self):
        started = time.monotonic()
        threads = []
        with Producers(self.shop, self.plan.seed, self.plan.events_per_s):
            for step in self.steps:
                self._look_after_until(started + step.at_s)
                threads.append(threading.Thread(target=self._guard, args=(step,), name=step.kind))
                threads[-1].start()
            self._look_after_until(started + self.plan.seconds)
        for thread in threads:
            while thread.is_alive():
                thread.join(0.1)
                self.fleet.look_after()

    def _look_after_until(self, at):
        while time.monotonic() < at:
            self.fleet.look_after()
            time.sleep(min(0.1, max(0.0, at - time.monotonic())))

    def _guard(self, step):
        try:
            faults.play(self, step)
        except Exception as error:  # in a thread: told at the end, whatever it is
            self.errors.append(f"{step.kind} at {step.at_s} s: {type(error).__name__}: {error}")

    def _drain(self):
        """However long it takes, as long as it goes on."""
        least, since = None, time.monotonic()
        while least != 0:
            self.fleet.look_after()
            with contextlib.suppress(psycopg2.OperationalError):
                left = self.shop.left()
                if least is None or left < least:
                    least, since = left, time.monotonic()
            assert time.monotonic() - since < STUCK_S, f"{least} events are left, and in {STUCK_S} s there were no fewer"
            time.sleep(0.1)

    def _stop(self):
        self.memory.stop()
        for place in self.fleet.places:
            if not place.stop():
                self.errors.append(f"{place.name} could not finish although nothing was in its way")

    def _judge(self):
        final = self.shop.final()
        known = [note.fault() for note in self.notes] + self._stalls()
        verdict = check(self.shop.journal, self.target.receipts(), known, final, attempts=1000, seed=self.plan.seed)
        return Outcome(self.plan, self.steps, verdict, final, self.errors, self.missed, self.memory, self.fleet.relays())

    def _stalls(self):
        """A machine that has no time for anybody lets answers become too late: a fault that no schedule has."""
        return [Fault("machine.stalled", SINK_IN_FLIGHT, None, at=begun, until=ended + LEFT_BEHIND_S)
                for begun, ended in self.memory.stalls for _ in self.fleet.places]
