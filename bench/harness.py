"""What the questions share: a database with rows to drain, and relays on it."""

import contextlib
import os
import re
import statistics
import subprocess
import time
from dataclasses import dataclass
from typing import Callable

from bench.answer import BenchFailed
from tests.support import servers
from tests.support.process import REPO

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(REPO, "build", "release")
CONNECTIONS = 2  # the relay's default, and the floor's
SHORTEST_S = 0.05  # below, starting and ending are most of what is measured
OVERHEADS = 3  # and a run takes so many times what is subtracted for them
TEMPLATE = "bench_template"
TEMPLATE_ROWS = 100_000  # of table `filled`; refill() copies them as often as it has to
RUN_TIMEOUT_S = 600

CONFIG = """\
database: "{dsn}"
sinks:
  out: {sink}
queues:
  bench: {{ sink: out{queue} }}
"""


@dataclass
class Run:
    """How this run measures."""

    quick: bool
    pairs: int
    say: Callable  # one line of progress
    keep: bool = True  # write results, plots and pages

    def size(self, full, quick):
        """`full`, or with --quick `quick`: events, seconds, whatever a question has much of."""
        return quick if self.quick else full


def read_sql(name):
    """A file of bench/sql without its comments: they would go over the wire each time."""
    with open(os.path.join(HERE, "sql", name), encoding="utf-8") as file:
        return "".join(line for line in file if not line.startswith("--"))


def run_floor(program, *arguments, timeout_s=RUN_TIMEOUT_S):
    """The numbers that a floor program printed."""
    done = subprocess.run([os.path.join(BUILD, f"floor_{program}"), *map(str, arguments)], capture_output=True, text=True,
                          check=False, timeout=timeout_s)
    if done.returncode != 0:
        raise BenchFailed(f"floor_{program}: {done.stderr}")
    return [float(part) for part in done.stdout.split()]


def make_template(postgres):
    """Once a server: databases are copied from it, which takes a fifth of the time that making them would."""
    db = postgres.create_database(name=TEMPLATE)
    done = servers.run_command("migrate", "-d", db.owner_dsn)
    if done.returncode != 0:
        raise BenchFailed(f"pgcourier migrate: {done.stderr}")
    db.create_logins()
    db.psql(f"\\set rows {TEMPLATE_ROWS}\n" + read_sql("fill.sql"))


class Bench:
    """A migrated database on a PostgreSQL with its default durability. A question that needs other settings makes
    another: Bench(postgres, bench.run)."""

    def __init__(self, postgres, run, name="bench"):
        self.postgres, self.run, self.say = postgres, run, run.say
        self.folder = postgres.folder
        if not postgres.query("select 1 from pg_database where datname = %s", [TEMPLATE]):
            make_template(postgres)
        self.db = postgres.create_database(TEMPLATE, name)
        self.overheads_s = {}

    # --- rows ---

    def refill(self, events, keys):
        """The table as it is before each run: `events` of 300 bytes, of `keys` keys that take turns, no dead rows, nothing
        left to write."""
        self.empty()
        self.append(events, keys)
        self.db.psql(read_sql("settle_down.sql"))

    def empty(self):
        self.db.query("truncate outbox.events restart identity")

    def append(self, events, keys, first=0):
        """More events, in one transaction for each 100,000. `first` is the number of the first one's turn."""
        insert = read_sql("append.sql")
        for at in range(first, first + events, TEMPLATE_ROWS):
            count = min(TEMPLATE_ROWS, first + events - at)
            self.db.psql(f"\\set first {at}\n\\set count {count}\n\\set keys {keys}\n" + insert)

    def expect_drained(self, who, delivered, events):
        left = self.db.value("select count(*) from outbox.events")
        if delivered != events or left:
            raise BenchFailed(f"{who} delivered {delivered:,.0f} of {events:,} events and left {left:,}")

    # --- relays ---

    def relay(self, sink, queue="", until_empty=False):
        """A relay that has not been started. `sink` is its configuration, `queue` what the queue's has besides the sink:
        'destination: "x", after: archive'."""
        config = CONFIG.format(dsn=self.db.dsn, sink=sink, queue=f", {queue}" if queue else "")
        return servers.Relay(config, until_empty=until_empty)

    def time_relay(self, sink, queue="", count=1):
        """(seconds from the first exec to the last exit, events delivered) of so many relays that run --until-empty."""
        with contextlib.ExitStack() as stack:
            relays = [stack.enter_context(contextlib.closing(self.relay(sink, queue, until_empty=True))) for _ in range(count)]
            begun = time.monotonic()
            for relay in relays:
                relay.start()
            for relay in relays:
                code = relay.wait(RUN_TIMEOUT_S)
                if code != 0:
                    raise BenchFailed(f"the relay ended with {code}\n{relay.process.log_tail()}")
            seconds = time.monotonic() - begun
            return seconds, sum(int(last_stats(relay)["delivered"]) for relay in relays)

    def relay_overhead_s(self, sink="{ type: discard }", queue="", count=1):
        """What a run of so many relays costs besides the events: starting, checking the table, connecting to the receiver, noticing that the
        table is empty. It is what a run with one event takes, which the sink gets."""
        known = self.overheads_s.get((sink, queue, count))
        if known is None:
            known = statistics.median(self._time_one_event(sink, queue, count) for _ in range(self.run.size(5, 3)))
            self.overheads_s[sink, queue, count] = known
        return known

    def expect_long(self, what, seconds, overhead_s):
        """A run that took so many seconds, and overhead_s of starting and ending besides, has measured something."""
        least_s = max(SHORTEST_S, (OVERHEADS - 1) * overhead_s)
        if seconds < least_s:
            raise BenchFailed(f"{what}: {seconds:.3f} s, and {overhead_s:.3f} s of starting and ending: too short to be measured")

    def _time_one_event(self, sink, queue, count):
        self.refill(1, 1)
        return self.time_relay(sink, queue, count)[0]


def last_stats(relay):
    """The facts of the last queue.stats line, as texts."""
    lines = relay.logged(r"queue\.stats")
    if not lines:
        raise BenchFailed(f"the relay said nothing\n{relay.process.log_tail()}")
    return dict(re.findall(r"(\w+)=(\S+)", lines[-1]))
