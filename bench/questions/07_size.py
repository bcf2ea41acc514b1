"""Is a million keys, or a backlog of 10 million rows, as fast as question 1, in 64 MB?"""

from bench import watched
from bench.answer import Answer, BenchFailed
from bench.harness import Bench

MEGABYTE = 1 << 20


def drain(bench, events, keys):
    """(events a second of a whole drain, peak memory)."""
    overhead_s = bench.relay_overhead_s()
    bench.refill(events, keys)
    seconds, delivered, peak = watched.run(bench)
    bench.expect_drained("the relay", delivered, events)
    return events / (seconds - overhead_s), peak


def many_keys(bench, usual):
    many = bench.run.size(1_000_000, 100_000)
    floors, rates, peaks = [], [], []
    for number in range(1, bench.run.pairs + 1):
        floors.append(drain(bench, *usual)[0])
        rate, peak = drain(bench, many, many)
        rates.append(rate)
        peaks.append(peak / MEGABYTE)
        bench.say(f"a key an event, pair {number} of {bench.run.pairs}: question 1 {floors[-1]:,.0f}/s, relay {rate:,.0f}/s, "
                  f"{peaks[-1]:.0f} MB")
    name = f"{many:,} keys, one event each"
    return [Answer(name, "events/s", rates, floors, must=0.80, aim=0.95, events=many, note="floor: the relay in question 1"),
            Answer(f"{name}: peak memory", "MB", peaks, must=64, more=False, events=many)]


def backlog(bench, usual):
    """The backlog is filled once; each run takes some seconds' worth of its rows, and all together must not empty it."""
    rows, seconds = bench.run.size((10_000_000, 6), (1_000_000, 1))
    overhead_s = bench.relay_overhead_s()
    deep = Bench(bench.postgres, bench.run, name=f"{bench.db.name}_deep")
    try:
        bench.say(f"making a backlog of {rows:,} rows")
        deep.refill(rows, usual[1])
        floors, rates, peaks, gone = [], [], [], 0
        for number in range(1, bench.run.pairs + 1):
            floors.append(drain(bench, *usual)[0])
            took_s, delivered, peak = watched.run(deep, seconds)
            gone += delivered
            rates.append(delivered / (took_s - overhead_s))
            peaks.append(peak / MEGABYTE)
            bench.say(f"backlog, pair {number} of {bench.run.pairs}: question 1 {floors[-1]:,.0f}/s, relay {rates[-1]:,.0f}/s, "
                      f"{peaks[-1]:.0f} MB")
        left = deep.db.value("select count(*) from outbox.events")
        if left != rows - gone or left == 0:
            raise BenchFailed(f"of a backlog of {rows:,} rows {gone:,} were delivered and {left:,} are left")
    finally:
        deep.db.drop()
    name = f"backlog of {rows:,} rows"
    return [Answer(name, "events/s", rates, floors, must=0.80, aim=0.95, events=gone // len(rates),
                   note=f"floor: the relay in question 1; runs of {seconds} s, {left:,} rows were left"),
            Answer(f"{name}: peak memory", "MB", peaks, must=64, more=False, events=gone // len(rates))]


def ask(bench):
    usual = bench.run.size((500_000, 50_000), (100_000, 10_000))
    return many_keys(bench, usual) + backlog(bench, usual)
