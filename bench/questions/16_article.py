"""How many times faster than the article's worker loop is the relay, with as many connections?"""

from bench.answer import Answer, BenchFailed
from bench.drain import WARM_UP
from bench.harness import CONNECTIONS, read_sql, run_floor

QUEUE = ("table: public.events, "
         "columns: { id: id, key: order_id, type: status, payload: payload, created_at: created_at }")


def fill(bench, events, keys):
    bench.db.psql(f"\\set count {events}\n\\set keys {keys}\n" + read_sql("article_fill.sql"))


def left(bench):
    return bench.db.value("select count(*) from public.events")


def article_rate(bench, events, keys, seconds):
    fill(bench, events, keys)
    statements = [read_sql(f"article_{name}.sql") for name in ("lock", "read", "delete")]
    done, seconds = run_floor("article", bench.db.superuser_dsn, *statements, CONNECTIONS, seconds)
    if done != events - left(bench) or done == events:
        raise BenchFailed(f"the article's workers say {done:,.0f} of {events:,} events, and {left(bench):,} are left")
    return done / seconds


def relay_rate(bench, events, keys):
    """Events a second, and how many seconds that took."""
    overhead_s = bench.relay_overhead_s()
    fill(bench, events, keys)
    seconds, delivered = bench.time_relay("{ type: discard }", QUEUE)
    if delivered != events or left(bench):
        raise BenchFailed(f"the relay delivered {delivered:,} of {events:,} events and left {left(bench):,}")
    return events / (seconds - overhead_s), seconds - overhead_s


def ask(bench):
    bench.db.psql(read_sql("article_table.sql"))
    bench.db.let_relay_in("public.events")
    events, keys, seconds = bench.run.size((300_000, 30_000, 8), (100_000, 10_000, 2))
    article_rate(bench, events, keys, seconds / WARM_UP)
    relay_rate(bench, events // WARM_UP, keys // WARM_UP)
    overhead_s = bench.relay_overhead_s()
    floors, rates = [], []
    for number in range(1, bench.run.pairs + 1):
        floors.append(article_rate(bench, events, keys, seconds))
        rate, took_s = relay_rate(bench, events, keys)
        rates.append(rate)
        bench.expect_long(f"{events:,} events of the article's table", took_s, overhead_s)
        bench.say(f"pair {number} of {bench.run.pairs}: the article's loop {floors[-1]:,.0f}/s, relay {rates[-1]:,.0f}/s")
    return [Answer("drain the article's table", "events/s", rates, floors, must=12, aim=20, events=events, overhead_s=overhead_s,
                   note=f"floor: its loop, one event a transaction, {CONNECTIONS} connections, for {seconds} s")]
