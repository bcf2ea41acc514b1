"""What the questions share: the table and its refills, one timed drain by the floor or by a relay, pairs of both, and
latency at a steady rate."""

import os
import re
import statistics
import subprocess
import time
from dataclasses import dataclass, field

from tests.support import servers
from tests.support.process import REPO, wait_until

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(REPO, "build", "release")
CONNECTIONS = 2  # the relay's default, and the floor's
KEYS = 20_000
PRODUCERS = 8
LATENCY_RATE = 1000  # events/s
RUN_TIMEOUT_S = 300

CONFIG = """\
database: "{dsn}"
sinks:
  out: {sink}
queues:
  bench: {{ sink: out{destination} }}
"""


class BenchFailed(Exception):
    pass


@dataclass
class Answer:
    """One line of the table. Ranges are (least, most); ratio is the median of the pairs' ratios."""

    question: str
    unit: str
    floors: list
    rates: list
    note: str = ""
    ratio: float = field(init=False)

    def __post_init__(self):
        self.ratio = statistics.median(rate / floor for rate, floor in zip(self.rates, self.floors))

    @property
    def floor(self):
        return statistics.median(self.floors)

    @property
    def rate(self):
        return statistics.median(self.rates)

    def as_json(self):
        ratios = [rate / floor for rate, floor in zip(self.rates, self.floors)]
        return {"question": self.question, "floor": round(self.floor, 3), "rate": round(self.rate, 3),
                "ratio": round(self.ratio, 4), "unit": self.unit, "floors": [round(one, 3) for one in self.floors],
                "rates": [round(one, 3) for one in self.rates], "ratios": [round(one, 4) for one in ratios],
                "note": self.note}


def read_sql(name):
    """A file of bench/sql without its comments: they would go over the wire each time."""
    with open(os.path.join(HERE, "sql", name), encoding="utf-8") as file:
        return "".join(line for line in file if not line.startswith("--"))


def run_floor(program, *arguments):
    """The numbers that a floor program printed."""
    done = subprocess.run([os.path.join(BUILD, f"floor_{program}"), *map(str, arguments)], capture_output=True, text=True,
                          check=False, timeout=RUN_TIMEOUT_S)
    if done.returncode != 0:
        raise BenchFailed(f"floor_{program}: {done.stderr}")
    return [float(part) for part in done.stdout.split()]


class Bench:
    """One PostgreSQL with its default durability, a migrated database and the rows of the drains."""

    def __init__(self, postgres, events, pairs, latency_s, say):
        self.events, self.pairs, self.latency_s, self.say = events, pairs, latency_s, say
        self.folder = postgres.folder
        self.db = postgres.create_database(name="bench")
        done = servers.run_command("migrate", "-d", self.db.owner_dsn)
        if done.returncode != 0:
            raise BenchFailed(f"pgcourier migrate: {done.stderr}")
        self.db.create_logins()
        say(f"making {events:,} events of 300 bytes for {KEYS:,} keys")
        self.db.psql(f"\\set events {events}\n\\set keys {KEYS}\n" + read_sql("fill.sql"))
        self.start_s = None

    # --- relays ---

    def relay(self, sink, destination, until_empty=False):
        """A relay that has not been started."""
        destination = f', destination: "{destination}"' if destination else ""
        config = CONFIG.format(dsn=self.db.dsn, sink=sink, destination=destination)
        return servers.Relay(config, until_empty=until_empty)

    def time_relay(self, sink, destination):
        """(seconds from exec to exit, facts of the last queue.stats line) of a run --until-empty."""
        relay = self.relay(sink, destination, until_empty=True)
        try:
            begun = time.monotonic()
            code = relay.start().wait(RUN_TIMEOUT_S)
            seconds = time.monotonic() - begun
            if code != 0:
                raise BenchFailed(f"the relay ended with {code}\n{relay.process.log_tail()}")
            return seconds, last_stats(relay)
        finally:
            relay.close()

    def relay_overhead_s(self):
        """What a run costs that has nothing to deliver: starting, checking the table, noticing that it is empty."""
        if self.start_s is None:
            self.db.query("truncate outbox.events restart identity")
            self.start_s = statistics.median(self.time_relay("{ type: discard }", None)[0] for _ in range(5))
        return self.start_s

    # --- drains ---

    def refill(self):
        self.db.psql(read_sql("refill.sql"))

    def drain_floor(self):
        """Events a second."""
        self.refill()
        rows, seconds = run_floor("drain", self.db.superuser_dsn, read_sql("floor_drain.sql"), CONNECTIONS)
        self.expect("the floor", rows)
        return rows / seconds

    def drain_relay(self, sink, destination):
        """Events a second."""
        overhead_s = self.relay_overhead_s()
        self.refill()
        seconds, stats = self.time_relay(sink, destination)
        self.expect("the relay", int(stats["delivered"]))
        return self.events / (seconds - overhead_s)

    def expect(self, who, rows):
        left = self.db.value("select count(*) from outbox.events")
        if rows != self.events or left:
            raise BenchFailed(f"{who} delivered {rows:,.0f} of {self.events:,} events and left {left:,}")

    def compare_drain(self, question, sink, destination=None, check=None, note=""):
        """Floor and relay in turn, self.pairs times. check(), if any, says how many events the sink has received since
        it was called before."""
        floors, rates = [], []
        for number in range(1, self.pairs + 1):
            floors.append(self.drain_floor())
            rates.append(self.drain_relay(sink, destination))
            if check and (received := check()) != self.events:
                raise BenchFailed(f"{question}: the sink received {received:,} of {self.events:,} events")
            self.say(f"{question}, pair {number} of {self.pairs}: floor {floors[-1]:,.0f}/s, relay {rates[-1]:,.0f}/s")
        return Answer(question, "events/s", floors, rates, note)

    # --- latency ---

    def load(self, destination):
        """(p50 ms, p99 ms) of floor_latency; `none`: only the inserts."""
        count = LATENCY_RATE * self.latency_s
        p50, p99, rate = run_floor("latency", self.db.superuser_dsn, read_sql("floor_insert.sql"), read_sql("floor_read.sql"),
                                   PRODUCERS, LATENCY_RATE, count, destination)
        if rate < LATENCY_RATE * 0.95:
            self.say(f"  this machine inserts only {rate:,.0f} events/s beside that")
        return p50, p99

    def floor_latency(self, destination):
        self.db.query("truncate outbox.events restart identity")
        return self.load(destination)

    def relay_latency(self, sink, destination):
        self.db.query("truncate outbox.events restart identity")
        relay = self.relay(sink, destination)
        try:
            relay.start()
            wait_until(lambda: relay.logged("relay.start"), what="the relay to start")
            self.load("none")
            wait_until(lambda: not self.db.query("select id from outbox.events limit 1"), 60, "the relay to deliver all")
            if relay.stop() != 0:
                raise BenchFailed(f"the relay ended with {relay.exit_code}\n{relay.process.log_tail()}")
            stats = last_stats(relay)
            if int(stats["delivered"]) != LATENCY_RATE * self.latency_s:
                raise BenchFailed(f"the relay delivered {stats['delivered']} events")
            return float(stats["lag_p50_ms"]), float(stats["lag_p99_ms"])
        finally:
            relay.close()

    def compare_latency(self, question, floor_destination, sink, destination=None):
        floors, rates = [], []
        for number in range(1, self.pairs + 1):
            floors.append(self.floor_latency(floor_destination))
            rates.append(self.relay_latency(sink, destination))
            self.say(f"{question}, pair {number} of {self.pairs}: floor p50 {floors[-1][0]:.1f} p99 {floors[-1][1]:.1f} ms, "
                     f"relay p50 {rates[-1][0]:.1f} p99 {rates[-1][1]:.1f} ms")
        return [Answer(f"{question}, {name}", "ms", [one[at] for one in floors], [one[at] for one in rates])
                for at, name in enumerate(("p50", "p99"))]


def last_stats(relay):
    """The facts of the last queue.stats line, as texts."""
    lines = relay.logged(r"queue\.stats")
    if not lines:
        raise BenchFailed(f"the relay said nothing\n{relay.process.log_tail()}")
    return dict(re.findall(r"(\w+)=(\S+)", lines[-1]))
