"""How fast a table is emptied, by a floor and by a relay in turn."""

import math
from dataclasses import dataclass, replace
from typing import Callable

from bench.answer import Answer, BenchFailed
from bench.harness import CONNECTIONS, read_sql, run_floor

WARM_UP = 10  # a share of the events


@dataclass
class Drain:
    """One kind of drain. The table is filled anew before each run."""

    question: str
    events: int
    keys: int
    sink: str  # its configuration
    queue: str = ""  # what the queue's configuration has besides the sink
    floor: Callable = None  # (bench, drain) -> seconds until no event is left; None: the bare loop of DELETE
    by_relay: "Drain" = None  # or another drain by a relay is what this one is held against
    relays: int = 1
    received: Callable = None  # () -> how many events the sink has got since the call before; None: not counted


def sql_loop(name):
    """A floor: this statement of bench/sql on as many connections as the relay has, until it takes no row."""
    def floor(bench, drain):
        rows, seconds = run_floor("drain", bench.db.superuser_dsn, read_sql(name), CONNECTIONS)
        if rows != drain.events:
            raise BenchFailed(f"the floor took {rows:,.0f} of {drain.events:,} rows")
        return seconds
    return floor


delete_loop = sql_loop("floor_drain.sql")


def drain_floor(bench, drain):
    """Events a second."""
    if drain.by_relay:
        return drain_relay(bench, drain.by_relay)
    bench.refill(drain.events, drain.keys)
    seconds = (drain.floor or delete_loop)(bench, drain)
    bench.expect_drained("the floor", drain.events, drain.events)
    if drain.received:
        drain.received()  # what the floor has put there
    return drain.events / seconds


def overhead_s(bench, drain):
    return bench.relay_overhead_s(drain.sink, drain.queue, drain.relays)


def drain_relay(bench, drain):
    """Events a second, without what starting and ending cost."""
    beside_s = overhead_s(bench, drain)
    if drain.received:
        drain.received()  # what that has put there
    bench.refill(drain.events, drain.keys)
    seconds, delivered = bench.time_relay(drain.sink, drain.queue, drain.relays)
    bench.expect_drained("the relay", delivered, drain.events)
    if drain.received and (received := drain.received()) != drain.events:
        raise BenchFailed(f"{drain.question}: the sink received {received:,} of {drain.events:,} events")
    return drain.events / (seconds - beside_s) if seconds > beside_s else math.inf


def smaller(drain):
    return replace(drain, events=max(drain.events // WARM_UP, min(drain.events, 1000)), by_relay=drain.by_relay and smaller(drain.by_relay))


def expect_long(bench, drain, rate):
    bench.expect_long(f"{drain.question}, {drain.events:,} events", drain.events / rate, overhead_s(bench, drain))


def compare(bench, drain, must=None, aim=None, note=""):
    """Floor and relay in turn, each of them first in every second pair, after a tenth of it to warm up. Returns the Answer."""
    turn = [drain_floor, drain_relay]
    rates_of = {run: [] for run in turn}
    floors, rates = (rates_of[run] for run in turn)
    for run in turn:
        run(bench, smaller(drain))
    for number in range(1, bench.run.pairs + 1):
        for run in turn:
            rates_of[run].append(run(bench, drain))
        turn.reverse()
        expect_long(bench, drain, rates[-1])
        if drain.by_relay:
            expect_long(bench, drain.by_relay, floors[-1])
        else:
            bench.expect_long(f"{drain.question}, floor", drain.events / floors[-1], 0)
        bench.say(f"{drain.question}, pair {number} of {bench.run.pairs}: floor {floors[-1]:,.0f}/s, relay {rates[-1]:,.0f}/s")
    return Answer(drain.question, "events/s", rates, floors, must, aim, note=note, events=drain.events,
                  overhead_s=overhead_s(bench, drain))
