"""What does a relay cost at 10, 200 and 1,000 events/s, and how long does an event wait, from the first one after a rest on?"""

import time
from dataclasses import dataclass

from bench import cpu
from bench.answer import Answer, BenchFailed
from bench.harness import last_stats
from bench.latency import expect_rate, insert_steadily, steady_count
from bench.table import spread
from tests.support.process import wait_until

REST_S = 2  # without events, so that the relay is at rest when the first ones come
LIMITS = {  # events/s: must and aim for the server's share of a core, then for p50 and p99 in ms
    10: ((0.5, 0.2), (None, None), (None, None)),
    200: ((4, 2), (5, 4), (12, 8)),
    1000: ((10, 5), (5, 4), (12, 8)),
}


@dataclass
class Day:
    """A run at one rate: shares of a core in %, times in ms."""

    server: float
    relay: float
    p50: float
    p99: float
    p999: float


def share_of_server(bench, seconds, rate):
    """Of the inserts, and of whatever else the server does meanwhile."""
    begun, used = time.monotonic(), cpu.of_server(bench.postgres)
    expect_rate(insert_steadily(bench, seconds, rate), rate)
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
    for number in range(bench.run.pairs):
        bench.empty()
        time.sleep(REST_S)
        alone.append(share_of_server(bench, seconds, rate))
        days.append(with_relay(bench, seconds, rate))
        bench.say(f"{rate:,} events/s, pair {number + 1} of {bench.run.pairs}: server {alone[-1]:.1f} % of a core without a relay, {days[-1].server:.1f} "
                  f"with one, which uses {days[-1].relay:.1f} itself; p50 {days[-1].p50:.1f} ms, p99 {days[-1].p99:.1f}, p99.9 {days[-1].p999:.1f}")
    return alone, days


def ask(bench):
    answers = []
    for rate, limits in LIMITS.items():
        alone, days = at_rate(bench, rate, bench.run.size(15, 5))
        costs = [day.server - inserts for inserts, day in zip(alone, days)]
        (cost_must, cost_aim), (p50_must, p50_aim), (p99_must, p99_aim) = limits
        answers += [
            Answer(f"cost at {rate:,}/s", "% of a core", costs, must=cost_must, aim=cost_aim, more=False,
                   note=f"inserts alone {spread(alone)} %; the relay itself {spread([day.relay for day in days])} %"),
            Answer(f"p50 at {rate:,}/s", "ms", [day.p50 for day in days], must=p50_must, aim=p50_aim, more=False,
                   note=f"from {REST_S} s without events on; p99.9 {spread([day.p999 for day in days])} ms"),
            Answer(f"p99 at {rate:,}/s", "ms", [day.p99 for day in days], must=p99_must, aim=p99_aim, more=False)]
    return answers
