"""Relays that are watched while they run."""

import contextlib
import datetime
import re
import subprocess
import time

from bench.answer import BenchFailed
from bench.harness import RUN_TIMEOUT_S, last_stats
from tests.support.process import wait_until

CLAIM = re.compile(r"^(\S+)Z .* msg=claim\.done .* events=(\d+) .* took_us=(\d+)")


def run(bench, seconds=None):
    """(seconds from exec to exit, events, peak of its resident memory in bytes) of a relay to discard: until the table is
    empty, or stopped after some seconds."""
    relay = bench.relay("{ type: discard }", until_empty=seconds is None)
    try:
        begun = time.monotonic()
        relay.start()
        while relay.running and time.monotonic() - begun < (seconds or RUN_TIMEOUT_S):
            relay.rss_peak()
            with contextlib.suppress(subprocess.TimeoutExpired):
                relay.process.wait(0.02)
        if relay.running and seconds is None:
            raise BenchFailed(f"the relay still runs after {RUN_TIMEOUT_S} s\n{relay.process.log_tail()}")
        if relay.stop() != 0:
            raise BenchFailed(f"the relay ended with {relay.exit_code}\n{relay.process.log_tail()}")
        return time.monotonic() - begun, int(last_stats(relay)["delivered"]), relay.peak_bytes
    finally:
        relay.close()


def to_last_event(claims):
    """Those before it that brought none have taken their time; those after it had nothing to find."""
    last = max(number for number, (_, events, _) in enumerate(claims) if events)
    return claims[:last + 1]


class Claims:
    """A relay to discard that says each claim in its log: when, how many events, how long it took.

    It stands still but during resume() .. pause(), so that each drain begins when everything is there."""

    def __init__(self, bench):
        self.relay = bench.relay("{ type: discard }")
        self.relay.arguments += ["--log-level", "debug"]
        self.claims, self._read = [], 0
        self.relay.start()
        wait_until(lambda: self.relay.logged("relay.start"), what="the relay to start")
        self.relay.pause()

    def read(self):
        """Reads on in the log. Returns the events of all claims so far."""
        with open(self.relay.log_path, encoding="utf-8", errors="replace") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[:text.rfind("\n") + 1]
        self._read += len(whole.encode())
        for line in whole.splitlines():
            found = CLAIM.match(line)
            if found:
                at = datetime.datetime.fromisoformat(found.group(1) + "+00:00").timestamp()
                self.claims.append((at, int(found.group(2)), int(found.group(3))))
        return sum(events for _, events, _ in self.claims)

    def drain(self, events):
        """Lets it claim as many events more. Returns (seconds to the last claim, [(events, microseconds) of each claim that it has begun])."""
        known, wanted = len(self.claims), self.read() + events
        begun = time.time()
        self.relay.resume()
        try:
            wait_until(lambda: self.read() >= wanted, RUN_TIMEOUT_S, "the relay to claim all", interval_s=0.05)
        finally:
            self.relay.pause()
        claims = to_last_event(self.claims[known:])
        # One that was on its way when it last stood still has taken that time, too.
        whole = [(count, took_us) for at, count, took_us in claims if at - took_us / 1e6 >= begun]
        return claims[-1][0] - begun, whole

    def stop(self):
        """(events that it has delivered, transactions that failed)."""
        if self.relay.stop() != 0:
            raise BenchFailed(f"the relay ended with {self.relay.exit_code}\n{self.relay.process.log_tail()}")
        return int(last_stats(self.relay)["delivered"]), len(self.relay.logged(r"msg=(claim|settle)\.failed "))
