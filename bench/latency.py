"""How long from insert to delivery at a steady rate."""

from bench.answer import Answer, BenchFailed
from bench.harness import last_stats, read_sql, run_floor
from tests.support.process import wait_until

PRODUCERS = 8
RATE = 1000  # events/s


def load(bench, seconds, destination):
    """(p50 ms, p99 ms) of floor_latency; `none`: only the inserts."""
    p50, p99, rate = run_floor("latency", bench.db.superuser_dsn, read_sql("floor_insert.sql"), read_sql("floor_read.sql"),
                               PRODUCERS, RATE, RATE * seconds, destination)
    if rate < RATE * 0.95:
        bench.say(f"  this machine inserts only {rate:,.0f} events/s beside that")
    return p50, p99


def of_floor(bench, seconds, destination):
    bench.empty()
    return load(bench, seconds, destination)


def of_relay(bench, seconds, sink, queue=""):
    bench.empty()
    relay = bench.relay(sink, queue)
    try:
        relay.start()
        wait_until(lambda: relay.logged("relay.start"), what="the relay to start")
        load(bench, seconds, "none")
        wait_until(lambda: not bench.db.query("select id from outbox.events limit 1"), 60, "the relay to deliver all")
        if relay.stop() != 0:
            raise BenchFailed(f"the relay ended with {relay.exit_code}\n{relay.process.log_tail()}")
        stats = last_stats(relay)
        if int(stats["delivered"]) != RATE * seconds:
            raise BenchFailed(f"the relay delivered {stats['delivered']} events")
        return float(stats["lag_p50_ms"]), float(stats["lag_p99_ms"])
    finally:
        relay.close()


def compare(bench, question, seconds, floor_destination, sink, queue=""):
    floors, rates = [], []
    for number in range(1, bench.run.pairs + 1):
        floors.append(of_floor(bench, seconds, floor_destination))
        rates.append(of_relay(bench, seconds, sink, queue))
        bench.say(f"{question}, pair {number} of {bench.run.pairs}: floor p50 {floors[-1][0]:.1f} p99 {floors[-1][1]:.1f} ms, "
                  f"relay p50 {rates[-1][0]:.1f} p99 {rates[-1][1]:.1f} ms")
    p50, p99 = ([one[at] for one in rates] for at in range(2))
    floor_p50, floor_p99 = ([one[at] for one in floors] for at in range(2))
    return [Answer(f"{question}, p50", "ms", p50, floor_p50, must=3, aim=2, more=False, events=RATE * seconds),
            Answer(f"{question}, p99", "ms", p99, floor_p99, must=10, aim=5, more=False, events=RATE * seconds),
            Answer(f"{question}, p99 by itself", "ms", p99, aim=10, more=False, events=RATE * seconds)]
