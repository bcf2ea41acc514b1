"""What most fault tests do: fill a shop, start relays, hurt them, and have the history checked.

    run = FaultRun(relay, Shop(db), FileTarget(tmp_path / "events.jsonl"))
    run.add(2000)
    one = run.start()
    run.wait_for(500)
    run.fault("what it is", in_flight=64)    # only if it may make deliveries uncertain; one for each time it does
    ... the fault ...
    run.finish()

Where nobody knows which sessions will end:

    run.harm()                               # before, each time
    ... the fault ...
    run.finish(lost_claims=True)             # the claims that relays have lost since may be repeated
"""

import re
import signal
import time
from datetime import datetime

import psycopg2

from tests.support.history import Fault
from tests.support.process import wait_until


NOTICED_S = 10  # a relay has noticed by then that its session has ended


class FaultRun:
    def __init__(self, start, shop, target, keys=50):
        self.start_relay, self.shop, self.target, self.keys = start, shop, target, keys
        self.relays = []
        self.faults = []
        self.harms = []  # what was known just before each: as of a Fault

    @property
    def db(self):
        return self.shop.db

    def add(self, events, keys=None):
        """`events` events, one commit; those of a key are spread over the whole."""
        return self.shop.add(events, keys or self.keys)

    def start(self, database=None, top="", sink=None, until_empty=False, program=None, env=None, **queue):
        """One relay more; `database` is a connection string instead of the shop's own."""
        name = f"relay-{len(self.relays) + 1}"
        text = self.shop.config(self.target.sink(relay=name, **(sink or {})), database=database, top=top,
                                **{**self.target.queue, **queue})
        one = self.start_relay(text, until_empty=until_empty, program=program, env=env)
        self.relays.append(one)
        return one

    def start_running(self, relays=1, **options):
        """Several more, which run: without a database at its start a relay would end."""
        for one in [self.start(**options) for _ in range(relays)]:
            wait_until(lambda one=one: one.logged("relay.start"), 30, "the relay to start")

    def wait_for(self, receipts, timeout_s=180):
        wait_until(lambda: self.target.count() >= receipts, timeout_s, f"{receipts} events to arrive")

    def wait_for_silence(self, timeout_s=60):
        """Until nothing has arrived for a second."""
        def silent():
            before = self.target.count()
            time.sleep(1)
            return self.target.count() == before

        wait_until(silent, timeout_s, "the relays to stop delivering")

    def wait_until_empty(self, timeout_s=180):
        """A server that is still too hurt for the question is asked again."""
        def empty():
            try:
                left = self.shop.left()
            except psycopg2.OperationalError:
                return False
            assert left == 0 or self.running() or self.shop.left() == 0, "no relay runs any more"
            return left == 0

        wait_until(empty, timeout_s, "the table to be empty", interval_s=0.05)

    def running(self):
        return [one for one in self.relays if one.exit_code is None]

    def fault(self, what, in_flight, times=1, relay=None):
        """To be told before it is done. Each time, `in_flight` events may become uncertain, those of one relay if it is
        said which."""
        name = f"relay-{self.relays.index(relay) + 1}" if relay else None
        self.faults += [Fault(what, in_flight, relay=name, **self._now())] * times

    def harm(self):
        """To be told before sessions are ended of which nobody knows what they have in flight."""
        self.harms.append(self._now())

    def _now(self):
        return {"receipts": self.target.count() or 0, "at": time.monotonic()}

    def logged(self, pattern):
        return [line for one in self.relays for line in one.logged(pattern)]

    def wait_for_log(self, pattern, timeout_s=60):
        return wait_until(lambda: self.logged(pattern), timeout_s, f"a log line with {pattern}")

    def lost_claims(self):
        """Claims whose connection broke: the outcome of their events may be unknown to the next relay. A fault of that
        relay, from the harm on that was done to it."""
        return [Fault("claim lost", int(re.search(r"events=(\d+)", line).group(1)), f"relay-{number}", **self._harm_of(line))
                for number, one in enumerate(self.relays, 1) for line in one.logged("msg=claim.lost")]

    def _harm_of(self, line):
        """The last one that it may have taken that long to log, or the first."""
        logged = datetime.fromisoformat(line.split()[0].replace("Z", "+00:00")).timestamp() - (time.time() - time.monotonic())
        assert self.harms and self.harms[0]["at"] <= logged + 0.01, f"nobody has told what harm was done before: {line}"
        return ([harm for harm in self.harms if harm["at"] <= logged - NOTICED_S] or self.harms[:1])[-1]

    def no_failures(self):
        """Nothing was counted as an event's own fault."""
        assert self.shop.attempts() == 0

    def finish(self, timeout_s=180, lost_claims=False, ordered=True):
        """Waits for the drain, stops the relays and checks the history; returns the number of duplicates."""
        self.wait_until_empty(timeout_s)
        self.stop()
        faults = self.faults + (self.lost_claims() if lost_claims else [])
        return self.shop.check(self.target.receipts(), faults, ordered=ordered).duplicates

    def stop(self):
        """One that is told to stop before it hears of signals would be killed by it."""
        for one in self.relays:
            if one.exit_code is None:
                wait_until(lambda one=one: one.logged("relay.start") or one.exit_code is not None, 30, "the relay to start")
                assert one.stop() == 0
            else:
                assert one.exit_code in (0, -signal.SIGKILL), one.log[-5:]
