"""How long from insert to Redis's answer at 1,000 events/s with `latency: 1ms`, beside one claim, one XADD and one settlement?"""

import math

from bench.answer import Answer
from bench.latency import RATE, expect_rate, of_relay, round_trip_ms
from bench.table import spread
from tests.support import servers

QUEUE = 'destination: "bench", latency: 1ms'  # question 18 has the default


def ask(bench):
    seconds = bench.run.size(15, 5)
    floors, floor_p99s, p50s, p99s, lowest = [], [], [], [], math.inf
    with servers.Redis() as redis:
        for number in range(bench.run.pairs + 1):
            floor, floor_p99 = round_trip_ms(bench, bench.run.size(2000, 500), redis)
            p50, p99, reached = of_relay(bench, seconds if number else 2, f'{{ type: redis, url: "{redis.url}" }}', QUEUE)
            if not number:
                continue  # that was to warm up
            expect_rate(reached)
            lowest = min(lowest, reached)
            floors.append(floor)
            floor_p99s.append(floor_p99)
            p50s.append(p50)
            p99s.append(p99)
            bench.say(f"latency, pair {number} of {bench.run.pairs}: round trip {floor:.2f} ms (p99 {floor_p99:.2f}), "
                      f"insert to delivery p50 {p50:.1f} ms, p99 {p99:.1f} ms, at {reached:,.0f} events/s")
    events, note = RATE * seconds, f"with `latency: 1ms`, at {lowest:,.0f} events/s or more in each run"
    return [Answer("latency to Redis, p50", "ms", p50s, floors, must=3, aim=2, more=False, events=events, note=note),
            Answer("latency to Redis, p99", "ms", p99s, floors, must=10, aim=5, more=False, events=events,
                   note="beside the median of the round trips"),
            Answer("latency to Redis, p99 by itself", "ms", p99s, aim=10, more=False, events=events,
                   note=f"p99 of the round trips {spread(floor_p99s)} ms")]
