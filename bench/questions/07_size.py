"""Is a million keys, or a backlog of 10 million rows, as fast as question 1, in 64 MB?"""

import statistics

from bench import watched
from bench.answer import Answer, BenchFailed
from bench.drain import WARM_UP, Drain, drain_floor, smaller
from bench.harness import CONNECTIONS, Bench, read_sql, run_floor

MEGABYTE = 1_000_000
WARM_UP_S = 0.5  # on the backlog


def beside_loop(bench):
    """What tells a relay that is slow with such rows from a database that is: in full runs only."""
    return not bench.run.quick


def loop_said(loops):
    return f"loop {loops[-1]:,.0f}/s, " if loops else ""


def answers(name, events, overhead_s, measured, notes):
    floors, loops, rates, peaks = measured
    by_loop = [Answer(f"{name}, beside the loop", "events/s", rates, loops, events=events, overhead_s=overhead_s, note=notes[1])] if loops else []
    return [Answer(name, "events/s", rates, floors, must=0.80, aim=0.95, events=events, overhead_s=overhead_s, note=notes[0]), *by_loop,
            Answer(f"{name}: peak memory", "MB", peaks, must=64, more=False, worst=True, events=events)]


def drain(bench, events, keys):
    """(events a second of a whole drain, peak memory)."""
    overhead_s = bench.relay_overhead_s()
    bench.refill(events, keys)
    seconds, delivered, peak = watched.run(bench)
    bench.expect_drained("the relay", delivered, events)
    bench.expect_long(f"{events:,} events of {keys:,} keys", seconds - overhead_s, overhead_s)
    return events / (seconds - overhead_s), peak


def warm_up(bench, events, keys):
    bench.refill(events // WARM_UP, keys // WARM_UP)
    watched.run(bench)


def many_keys(bench, usual):
    many = bench.run.size(1_000_000, 100_000)
    same_rows = Drain("a key an event", many, many, sink="{ type: discard }")
    warm_up(bench, *usual)
    if beside_loop(bench):
        drain_floor(bench, smaller(same_rows))
    warm_up(bench, many, many)
    floors, loops, rates, peaks = [], [], [], []
    for number in range(1, bench.run.pairs + 1):
        floors.append(drain(bench, *usual)[0])
        if beside_loop(bench):
            loops.append(drain_floor(bench, same_rows))
        rate, peak = drain(bench, many, many)
        rates.append(rate)
        peaks.append(peak / MEGABYTE)
        bench.say(f"a key an event, pair {number} of {bench.run.pairs}: question 1 {floors[-1]:,.0f}/s, {loop_said(loops)}"
                  f"relay {rate:,.0f}/s, {peaks[-1]:.0f} MB")
    return answers(f"{many:,} keys, one event each", many, bench.relay_overhead_s(), (floors, loops, rates, peaks),
                   ("floor: the relay in question 1", "floor: question 1's loop of DELETE over the same rows"))


def loop_over(deep, events):
    """Events a second of a loop of DELETE over the oldest ones of a backlog, in their order."""
    first, last = deep.db.query("select min(id), max(id) from (select id from outbox.events order by id limit %s) as e", [events])[0]
    loop = read_sql("floor_oldest.sql").replace("FIRST_ID", str(first)).replace("LAST_ID", str(last))
    rows, seconds = run_floor("drain", deep.db.superuser_dsn, loop, CONNECTIONS)
    if rows != events:
        raise BenchFailed(f"the loop took {rows:,.0f} of {events:,} rows")
    return events / seconds


def backlog(bench, usual):
    """The backlog is filled once; each run takes some seconds' worth of its rows, and all together must not empty it."""
    rows, seconds = bench.run.size((10_000_000, 6), (750_000, 0.8))
    overhead_s = bench.relay_overhead_s()
    deep = Bench(bench.postgres, bench.run, name=f"{bench.db.name}_deep")
    try:
        bench.say(f"making a backlog of {rows:,} rows")
        deep.refill(rows, usual[1])
        _, warmed_up, _ = watched.run(deep, WARM_UP_S)
        floors, loops, rates, peaks, gone = [], [], [], [], 0
        for number in range(1, bench.run.pairs + 1):
            floors.append(drain(bench, *usual)[0])
            took_s, delivered, peak = watched.run(deep, seconds)
            gone += delivered
            bench.expect_long("backlog", took_s - overhead_s, overhead_s)
            rates.append(delivered / (took_s - overhead_s))
            peaks.append(peak / MEGABYTE)
            if beside_loop(bench):
                by_loop = min(delivered, rows // (3 * bench.run.pairs))
                loops.append(loop_over(deep, by_loop))
                gone += by_loop
            bench.say(f"backlog, pair {number} of {bench.run.pairs}: question 1 {floors[-1]:,.0f}/s, {loop_said(loops)}"
                      f"relay {rates[-1]:,.0f}/s, {peaks[-1]:.0f} MB")
        left = deep.db.value("select count(*) from outbox.events")
        if left != rows - warmed_up - gone or left == 0:
            raise BenchFailed(f"of a backlog of {rows:,} rows {warmed_up + gone:,} were taken and {left:,} are left")
    finally:
        deep.db.drop()
    return answers(f"backlog of {rows:,} rows", int(statistics.mean(rates) * (seconds - overhead_s)), overhead_s, (floors, loops, rates, peaks),
                   (f"floor: the relay in question 1; runs of {seconds} s, {left:,} rows were left",
                    "floor: a loop of DELETE as question 1's over the oldest rows of the same backlog, in their order"))


def ask(bench):
    usual = bench.run.size((500_000, 50_000), (100_000, 10_000))
    return many_keys(bench, usual) + backlog(bench, usual)
