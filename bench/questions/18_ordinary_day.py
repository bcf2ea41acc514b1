"""What does a relay cost at 10, 200 and 1,000 events/s, and how long does an event wait, from the first one after a rest on?"""

import subprocess
import time
from dataclasses import dataclass

import psycopg2

from bench import cpu, river_worker
from bench.answer import Answer, BenchFailed
from bench.harness import last_stats, read_sql
from bench.latency import expect_rate, insert_steadily, steady_count
from bench.table import number, spread
from tests.support.process import ServerError, wait_until

REST_S = 2  # without events, so that the relay is at rest when the first ones come
LIMITS = {  # events/s: must and aim for the server's share of a core, then for p50 and p99 in ms
    10: ((0.5, 0.2), (None, None), (None, None)),
    200: ((4, 2), (5, 4), (12, 8)),
    1000: ((10, 5), (5, 4), (12, 8)),
}
RIVER_RATES = (200, 1000)
RIVER_COOLDOWN_S = 0.005  # as in bench/river/main.go
RIVER_SETTINGS = ("River 0.51 with FetchCooldown 5 ms, FetchPollInterval 100 ms, the rest as by default: completed jobs stay in the table. "
                  "Its jobs are inserted by plain SQL, with a notification in the same transaction each 5 ms, as one client of River's with 8 "
                  "connections sends it; cost is the server's share beyond these inserts without a worker, latency from created_at to the call "
                  "of Work")


@dataclass
class Day:
    """A run at one rate, of the relay or of River's worker: shares of a core in %, times in ms."""

    server: float
    own: float  # of the relay, or of the worker
    p50: float
    p99: float
    p999: float


def prepare(say):
    if not river_worker.is_built():
        say("== building River's worker")
        river_worker.reason_absent()


def share_of_server(bench, seconds, rate, insert=None):
    """Of the inserts, and of whatever else the server does meanwhile."""
    begun, used = time.monotonic(), cpu.of_server(bench.postgres)
    expect_rate(insert_steadily(bench, seconds, rate, insert), rate)
    return (cpu.of_server(bench.postgres) - used) / (time.monotonic() - begun) * 100


def with_relay(bench, seconds, rate):
    bench.empty()
    relay = bench.relay("{ type: discard }")
    try:
        relay.start()
        wait_until(lambda: relay.logged("relay.start"), what="the relay to start")
        time.sleep(REST_S)
        begun, used = time.monotonic(), cpu.of_process(relay.pid)
        server = share_of_server(bench, seconds, rate)
        own = (cpu.of_process(relay.pid) - used) / (time.monotonic() - begun) * 100
        wait_until(lambda: not bench.db.query("select id from outbox.events limit 1"), 60, "the relay to deliver all")
        if relay.stop() != 0:
            raise BenchFailed(f"the relay ended with {relay.exit_code}\n{relay.process.log_tail()}")
        stats = last_stats(relay)
        if int(stats["delivered"]) != steady_count(seconds, rate):
            raise BenchFailed(f"the relay delivered {stats['delivered']} events")
        return Day(server, own, *(float(stats[f"lag_{name}_ms"]) for name in ("p50", "p99", "p999")))
    finally:
        relay.close()


def at_rate(bench, rate, seconds):
    """Pairs of runs: inserts alone, and with a relay; what the server uses beyond the inserts alone is what the relay costs."""
    alone, days = [], []
    for pair in range(bench.run.pairs):
        bench.empty()
        time.sleep(REST_S)
        alone.append(share_of_server(bench, seconds, rate))
        days.append(with_relay(bench, seconds, rate))
        bench.say(f"{rate:,} events/s, pair {pair + 1} of {bench.run.pairs}: server {alone[-1]:.1f} % of a core without a relay, {days[-1].server:.1f} "
                  f"with one, which uses {days[-1].own:.1f} itself; p50 {days[-1].p50:.1f} ms, p99 {days[-1].p99:.1f}, p99.9 {days[-1].p999:.1f}")
    return alone, days


def river_insert(rate):
    return read_sql("river_insert.sql").replace("EACH", str(max(1, round(RIVER_COOLDOWN_S * rate))))


def with_river(bench, seconds, rate):
    bench.db.query("truncate river_job restart identity")
    with river_worker.RiverWorker(bench.db) as worker:
        time.sleep(REST_S)
        begun, used = time.monotonic(), cpu.of_process(worker.pid)
        server = share_of_server(bench, seconds, rate, river_insert(rate))
        own = (cpu.of_process(worker.pid) - used) / (time.monotonic() - begun) * 100
        wait_until(lambda: not bench.db.query("select id from river_job where state <> 'completed' limit 1"), 60, "River to work all")
        report = worker.report()
    if report["count"] != steady_count(seconds, rate):
        raise BenchFailed(f"River worked {report['count']} jobs")
    return Day(server, own, report["p50_ms"], report["p99_ms"], report["p999_ms"])


def river_at_rate(bench, rate, seconds):
    """One pair of runs: River's inserts alone, and with a worker."""
    bench.db.query("truncate river_job restart identity")
    time.sleep(REST_S)
    alone = share_of_server(bench, seconds, rate, river_insert(rate))
    day = with_river(bench, seconds, rate)
    bench.say(f"{rate:,} events/s, River: server {alone:.1f} % of a core without a worker, {day.server:.1f} with one, which uses {day.own:.1f} itself; "
              f"p50 {day.p50:.1f} ms, p99 {day.p99:.1f}, p99.9 {day.p999:.1f}")
    return [Answer(f"River: cost at {rate:,}/s", "% of a core", [day.server - alone], more=False,
                   note=f"inserts alone {number(alone)} %; the worker itself {number(day.own)} %"),
            Answer(f"River: p50 at {rate:,}/s", "ms", [day.p50], more=False, note=RIVER_SETTINGS),
            Answer(f"River: p99 at {rate:,}/s", "ms", [day.p99], more=False, note=f"p99.9 {number(day.p999)} ms")]


def beside_river(bench):
    """(answers, why there are no more of them): the relay's are given all the same."""
    answers = []
    try:
        river_worker.migrate(bench.db)
        for rate in RIVER_RATES:
            answers += river_at_rate(bench, rate, bench.run.size(15, 2))
    except (BenchFailed, OSError, ValueError, psycopg2.Error, subprocess.SubprocessError, ServerError) as error:
        why = "River is NOT beside the relay" + (" at all rates" if answers else "")
        bench.say(f"!! {why}: {str(error) or type(error).__name__}")
        return answers, f"{why}: {(str(error).splitlines() or [type(error).__name__])[0]}"
    return answers, ""


def of_relay(bench):
    answers = []
    for rate, limits in LIMITS.items():
        alone, days = at_rate(bench, rate, bench.run.size(15, 5))
        costs = [day.server - inserts for inserts, day in zip(alone, days)]
        (cost_must, cost_aim), (p50_must, p50_aim), (p99_must, p99_aim) = limits
        answers += [
            Answer(f"cost at {rate:,}/s", "% of a core", costs, must=cost_must, aim=cost_aim, more=False,
                   note=f"inserts alone {spread(alone)} %; the relay itself {spread([day.own for day in days])} %"),
            Answer(f"p50 at {rate:,}/s", "ms", [day.p50 for day in days], must=p50_must, aim=p50_aim, more=False,
                   note=f"from {REST_S} s without events on; p99.9 {spread([day.p999 for day in days])} ms"),
            Answer(f"p99 at {rate:,}/s", "ms", [day.p99 for day in days], must=p99_must, aim=p99_aim, more=False)]
    return answers


def ask(bench):
    answers = of_relay(bench)
    river, why = beside_river(bench)
    if why:
        answers[-1].note = why
    return answers + river
