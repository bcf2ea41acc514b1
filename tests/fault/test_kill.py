"""Twenty relays killed at random moments of a drain: nothing is lost, first deliveries stay in order, and no more events
come twice than the killed ones had in flight.

In flight is what a relay has claimed and not settled: at most PER_KEY events of every key that it holds the lock of when
it dies, which is counted. PGCOURIER_SEED repeats a run's choices."""

import os
import random
import signal
import threading
import time

import pytest

from tests.support.history import Fault
from tests.support.process import stands_still, wait_until
from tests.support.shop import Shop
from tests.support.targets import ExecTarget

KILLS = 20
RELAYS = 3
KEYS, PER_KEY = 16, 4
BACKLOG = 1500

LOCKS_HELD = ("select count(*) from pg_locks join pg_stat_activity using (pid)"
              " where locktype = 'advisory' and objsubid = 2 and application_name = %s")


class Backlog:
    """Keeps BACKLOG events or a few more in the table, so that every relay has something in hand all the time."""

    def __init__(self, shop, rng):
        self.shop = shop
        self.rng = rng
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._fill, name="backlog")

    def _fill(self):
        connection = self.shop.db.connect()
        while not self._over.is_set():
            if self.shop.left() < BACKLOG:
                self.shop.insert(self.shop.choose(self.rng, 300), connection)
                self.shop.insert(self.shop.choose(self.rng, 20), connection, commit=False)
            else:
                self._over.wait(0.02)
        connection.close()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()


class Killer:
    """Kills relays one after the other; start(name) gives a new one."""

    def __init__(self, shop, target, start, rng):
        self.shop, self.target, self.start, self.rng = shop, target, start, rng
        self.faults = []
        self.running = []
        self.started = 0

    def add(self):
        self.started += 1
        name = f"relay-{self.started}"
        self.running.append((name, self.start(name)))

    def kill_one(self):
        """Falls when the drain has gone on for a random number of events, and a random time more. It stands still while
        its locks are counted, and dies as it stood."""
        goal = self.shop.settled() + self.rng.randint(50, 400)
        wait_until(lambda: self.shop.settled() >= goal, 60, f"the drain to go on before kill {len(self.faults) + 1}")
        name, victim = self.running.pop(self.rng.randrange(len(self.running)))
        time.sleep(self.rng.uniform(0, 0.02))
        receipts, at = self.target.count() or 0, time.monotonic()
        victim.pause()
        wait_until(lambda: stands_still(victim.pid), 60, "the relay to stand still")
        in_flight = self.shop.db.value(LOCKS_HELD, (name,)) * PER_KEY
        if isinstance(self.target, ExecTarget):
            self.target.may_tear()  # its commands do not stand still
        victim.kill()
        assert victim.exit_code == -signal.SIGKILL, f"the relay had ended by itself: {victim.exit_code}"
        self.faults.append(Fault("SIGKILL", in_flight, relay=name, receipts=receipts, at=at))


@pytest.mark.parametrize("target", ["file", "exec", "redis", "http", "kafka"], indirect=True)
def test_kills_lose_nothing_and_repeat_no_more_than_was_in_flight(db, relay, target):
    seed = int(os.environ.get("PGCOURIER_SEED", random.SystemRandom().randrange(1_000_000)))
    print(f"PGCOURIER_SEED={seed}")
    rng = random.Random(seed)
    shop = Shop(db, orders=500)
    killer = Killer(shop, target, lambda name: relay(shop.config(
        target.sink(relay=name), application_name=name, after="archive", connections=1, keys_per_claim=KEYS,
        max_events_per_key=PER_KEY, **target.queue)), rng)
    with Backlog(shop, random.Random(seed + 1)):
        for _ in range(RELAYS):
            killer.add()
        for _ in range(KILLS):
            killer.kill_one()
            killer.add()
    wait_until(lambda: shop.left() == 0, 60, "the table to be empty")
    assert [one.stop() for _, one in killer.running] == [0] * RELAYS
    verdict = shop.check(target.receipts(), killer.faults, archived=True, seed=seed)
    in_flight = [fault.in_flight for fault in killer.faults]
    print(f"{KILLS} kills in {len(shop.committed)} events: {verdict.duplicates} duplicates of {sum(in_flight)} events in"
          f" flight; by kill {verdict.duplicates_by_fault} of {in_flight}")
