"""How fast a table is emptied, by a floor and by a relay in turn."""

from dataclasses import dataclass, replace
from typing import Callable

from bench.answer import Answer, BenchFailed
from bench.harness import CONNECTIONS, read_sql, run_floor


@dataclass
class Drain:
    """One kind of drain. The table is filled anew before each run."""

    question: str
    sink: str  # its configuration
    events: int
    keys: int
    queue: str = ""  # what the queue's configuration has besides the sink
    # Seconds that the floor takes for drain.events; the bare loop of DELETE when None. It has to leave nothing behind.
    floor: Callable = None
    # How many events the sink has got since this was called before.
    received: Callable = None


def drain_floor(bench, drain):
    """Events a second."""
    bench.refill(drain.events, drain.keys)
    seconds = (drain.floor or delete_loop)(bench, drain)
    bench.expect_drained("the floor", drain.events, drain.events)
    return drain.events / seconds


def delete_loop(bench, drain):
    rows, seconds = run_floor("drain", bench.db.superuser_dsn, read_sql("floor_drain.sql"), CONNECTIONS)
    if rows != drain.events:
        raise BenchFailed(f"the floor deleted {rows:,.0f} of {drain.events:,} rows")
    return seconds


def drain_relay(bench, drain):
    """Events a second, without what starting and ending cost."""
    overhead_s = bench.relay_overhead_s()
    bench.refill(drain.events, drain.keys)
    seconds, stats = bench.time_relay(drain.sink, drain.queue)
    bench.expect_drained("the relay", int(stats["delivered"]), drain.events)
    return drain.events / (seconds - overhead_s)


def pair(bench, drain):
    """(events/s of the floor, of the relay)."""
    floor = drain_floor(bench, drain)
    if drain.received:
        drain.received()  # what the floor has put there
    rate = drain_relay(bench, drain)
    if drain.received and (received := drain.received()) != drain.events:
        raise BenchFailed(f"{drain.question}: the sink received {received:,} of {drain.events:,} events")
    return floor, rate


def compare(bench, drain, must=None, aim=None, note=""):
    """Floor and relay in turn, after a tenth of it to warm up. Returns the Answer."""
    pair(bench, replace(drain, events=max(drain.events // 10, 1000)))
    floors, rates = [], []
    for number in range(1, bench.run.pairs + 1):
        floor, rate = pair(bench, drain)
        floors.append(floor)
        rates.append(rate)
        bench.say(f"{drain.question}, pair {number} of {bench.run.pairs}: floor {floor:,.0f}/s, relay {rate:,.0f}/s")
    return Answer(drain.question, "events/s", rates, floors, must, aim, note=note, events=drain.events)
