"""An HTTP receiver that takes its time, and the rate at which relays reach it."""

import collections
import os
import time
from dataclasses import dataclass

from bench.answer import BenchFailed
from bench.harness import BUILD, last_stats, run_floor
from tests.support.process import Process, Server, accepts, free_port, wait_until

LEAST_OF_IDEAL = 0.5  # with less for a bare client, the receiver is what would be measured; the notes say what it was


class Receiver(Server):
    """Receiver(0.01, 100, 5) -> started on enter; answers after 10 ms, every 100th request after 5 s."""

    name = "receiver"

    def __init__(self, delay_s, every=0, slow_s=0):
        super().__init__()
        self.port = free_port()
        self.delays = (delay_s, every, slow_s)
        self.mean_s = delay_s if not every else (delay_s * (every - 1) + slow_s) / every
        self.path = os.path.join(self.folder, "answers")
        self._read, self._answers_read = 0, []

    def _launch(self):
        delay_s, every, slow_s = self.delays
        rest = [str(every), str(int(slow_s * 1e6))] if every else []
        program = os.path.join(BUILD, "floor_receiver")
        return Process([program, str(self.port), self.path, str(int(delay_s * 1e6)), *rest], self.log_path)

    def _answers(self):
        return accepts(self.port)

    def sink(self, connections):
        return (f'{{ type: http, url: "http://127.0.0.1:{self.port}/in", connections: {connections},'
                f' max_in_flight: {connections} }}')

    def answered(self):
        """[(wall clock in seconds, id of the event)] of all answers so far, in their order."""
        with open(self.path, encoding="ascii") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[:text.rfind("\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            at_us, event = line.split()
            self._answers_read.append((int(at_us) / 1e6, int(event)))
        return self._answers_read

    def check(self, connections, seconds=2):
        """What it gives a bare client, of what its delay allows."""
        answers, seconds = run_floor("requests", self.port, connections, seconds)
        share = answers / seconds * self.mean_s / connections
        if share < LEAST_OF_IDEAL:
            raise BenchFailed(f"the receiver gives a bare client only {share:.2f} of what its delay allows")
        return share


@dataclass
class Load:
    """What relays do while a receiver is slow: events enough for warm_s and window_s, of keys that take turns."""

    events: int
    keys: int
    warm_s: float
    window_s: float
    connections: int = 256  # of each relay; the default
    relays: int = 1


@dataclass
class Reached:
    rate: float  # events/s in the window
    duplicates: int
    begin_at: float  # of the window, by the wall clock
    end_at: float


def reach(bench, receiver, load, beside=None):
    """Runs load.relays against a receiver that was just started, and counts answers in a window of their steady work.
    beside(stop), if any, is called once the window has begun, and returns when it is over."""
    bench.refill(load.events, load.keys)
    relays = [bench.relay(receiver.sink(load.connections)) for _ in range(load.relays)]
    try:
        for relay in relays:
            relay.start()
        wait_until(lambda: all(relay.logged("relay.start") for relay in relays), what="all relays to start")
        wait_until(receiver.answered, what="the first answer", interval_s=0.001)
        time.sleep(load.warm_s)
        begin_at = time.time()
        (beside or time.sleep)(load.window_s)
        end_at = time.time()
        for relay in relays:
            if relay.stop(timeout_s=60) != 0:
                raise BenchFailed(f"a relay ended with {relay.exit_code}\n{relay.process.log_tail()}")
        duplicates = expect_all(bench, receiver, load, sum(int(last_stats(relay)["delivered"]) for relay in relays))
        in_window = sum(begin_at <= at < end_at for at, _ in receiver.answered())
        return Reached((in_window - duplicates) / (end_at - begin_at), duplicates, begin_at, end_at)
    finally:
        for relay in relays:
            relay.close()


def expect_all(bench, receiver, load, delivered):
    """What has left the table was answered, and the relays say so. Returns how many answers were for an event that had
    had one."""
    counts = collections.Counter(event for _, event in receiver.answered())
    left = {row[0] for row in bench.db.query("select id from outbox.events")}
    lost = load.events - len(left) - len(counts)
    if lost or not left.isdisjoint(counts) or delivered != len(counts):
        raise BenchFailed(f"of {load.events:,} events {len(left):,} are left, {len(counts):,} were answered, and the relays "
                          f"delivered {delivered:,}")
    if len(left) < load.events * 0.01:
        raise BenchFailed("the table ran dry while the rate was measured: give it more events")
    return sum(counts.values()) - len(counts)
