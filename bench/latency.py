"""How long from insert to delivery at a steady rate, and what the least is that a delivery is made of."""

from bench.answer import BenchFailed
from bench.harness import last_stats, read_sql, run_floor
from tests.support.process import wait_until

PRODUCERS = 8
RATE = 1000  # events/s
LEAST_OF_RATE = 0.98  # with less, what is measured is the latency at another rate


def insert_steadily(bench, seconds, rate=RATE, insert=None):
    """Inserts by PRODUCERS connections, evenly spaced, one event a transaction. Returns the events/s that were reached, when all are
    committed. `insert`: the statement, if it is not that of an event."""
    reached, = run_floor("insert", bench.db.superuser_dsn, insert or read_sql("floor_insert.sql"), PRODUCERS, rate, rate * seconds)
    return reached


def steady_count(seconds, rate):
    """How many events insert_steadily() inserts: as many by each producer."""
    return rate * seconds // PRODUCERS * PRODUCERS


def expect_rate(reached, rate=RATE):
    if reached < rate * LEAST_OF_RATE:
        raise BenchFailed(f"the producers fell behind: {reached:,.0f} of {rate:,} events/s")


def round_trip_ms(bench, count, redis):
    """(p50, p99) of one claim, one XADD and one settlement, on connections that do nothing else."""
    bench.empty()
    relay = bench.relay(f'{{ type: redis, url: "{redis.url}" }}', 'destination: "floor"')
    try:
        return run_floor("roundtrip", relay.config_path, bench.db.superuser_dsn, read_sql("floor_insert.sql"), count, redis.port)
    finally:
        relay.close()


def of_relay(bench, seconds, sink, queue=""):
    """(p50 ms, p99 ms, events/s that came) from created_at to the ack, as the relay tells them: the upper ends of buckets of 3.2 %."""
    bench.empty()
    relay = bench.relay(sink, queue)
    try:
        relay.start()
        wait_until(lambda: relay.logged("relay.start"), what="the relay to start")
        reached = insert_steadily(bench, seconds)
        wait_until(lambda: not bench.db.query("select id from outbox.events limit 1"), 60, "the relay to deliver all")
        if relay.stop() != 0:
            raise BenchFailed(f"the relay ended with {relay.exit_code}\n{relay.process.log_tail()}")
        stats = last_stats(relay)
        if int(stats["delivered"]) != RATE * seconds:
            raise BenchFailed(f"the relay delivered {stats['delivered']} events")
        return float(stats["lag_p50_ms"]), float(stats["lag_p99_ms"]), reached
    finally:
        relay.close()
