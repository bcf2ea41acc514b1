"""What does a relay cost that has nothing to do: over millions of dead rows that an old snapshot keeps; beside 100,000
events that wait for their time?"""

import time

from bench import cpu
from bench.answer import Answer, BenchFailed
from bench.harness import Bench, last_stats
from tests.support import servers
from tests.support.postgres import RELAY_ROLE
from tests.support.process import wait_until

SETTLE_S = 5
DELAYED = 100_000
NEW_KEY = 1_000_000  # its event waits for nothing
POLL = "pg_try_advisory_xact_lock|as news"  # in a claim and in what an idle queue asks instead, and nowhere else

COSTS = """
select coalesce(sum(calls) filter (where query ~ %s), 0), coalesce(sum(shared_blks_hit + shared_blks_read), 0)
from pg_stat_statements where userid = %s::regrole and dbid = (select oid from pg_database where datname = current_database())"""


def make_dead_rows(idle, rows):
    """Returns the connection that keeps them. Vacuum would work on them in vain, with or without a relay: it is kept away."""
    idle.db.query("alter table outbox.events set (autovacuum_enabled = false)")
    idle.refill(rows, 50_000)
    holder = idle.db.connect(autocommit=False)
    holder.set_session(isolation_level="REPEATABLE READ")
    holder.cursor().execute("select 1")
    idle.db.query("delete from outbox.events")
    idle.db.query("checkpoint")
    return holder


def measure(idle, seconds):
    """(% of a core, buffers a poll, polls)."""
    relay = idle.relay("{ type: discard }")
    try:
        relay.start()
        wait_until(lambda: relay.logged("relay.start"), what="the relay to start")
        time.sleep(SETTLE_S)
        idle.db.query("select pg_stat_statements_reset()")
        begun, used = time.monotonic(), cpu.of_process(relay.pid) + cpu.of_server(idle.postgres)
        time.sleep(seconds)
        used = cpu.of_process(relay.pid) + cpu.of_server(idle.postgres) - used
        took_s = time.monotonic() - begun
        polls, buffers = map(int, idle.db.query(COSTS, (POLL, RELAY_ROLE))[0])
        if not relay.running or polls == 0:
            raise BenchFailed(f"the relay did not poll\n{relay.process.log_tail()}")
        proof(idle, relay)
        return used / took_s * 100, buffers / polls, polls
    finally:
        relay.close()


def proof(idle, relay):
    """An idle relay is one that would deliver what comes."""
    idle.append(1, NEW_KEY, first=NEW_KEY - 1)
    wait_until(lambda: not idle.db.query("select id from outbox.events where not_before is null limit 1"), 30,
               "the idle relay to deliver an event")
    if relay.stop() != 0 or last_stats(relay)["delivered"] != "1":
        raise BenchFailed(f"the idle relay did not deliver one event\n{relay.process.log_tail()}")


def make_delayed(idle):
    """Each holds back a key of its own. They are known to wait when the relay that is measured begins."""
    idle.append(DELAYED, DELAYED)
    idle.db.query("update outbox.events set not_before = now() + interval '1 day'")
    relay = idle.relay("{ type: discard }")
    try:
        relay.start()
        wait_until(lambda: idle.db.value("select count(*) from outbox.parked") == DELAYED, 120, "the relay to note what waits")
        if relay.stop() != 0:
            raise BenchFailed(f"the relay ended with {relay.exit_code}\n{relay.process.log_tail()}")
    finally:
        relay.close()
    idle.db.query("vacuum analyze outbox.events, outbox.parked")
    idle.db.query("checkpoint")


def ask(bench):
    rows, seconds = bench.run.size((5_000_000, 60), (500_000, 8))
    with servers.Postgres({"shared_preload_libraries": "pg_stat_statements"}, durable=True) as postgres:
        idle = Bench(postgres, bench.run, name="idle")
        idle.db.query("create extension pg_stat_statements")
        bench.say(f"making {rows:,} dead rows")
        holder = make_dead_rows(idle, rows)
        share, buffers, polls = measure(idle, seconds)
        holder.close()
        delayed = Bench(postgres, bench.run, name="delayed")
        delayed.db.query("create extension pg_stat_statements")
        nothing = measure(delayed, seconds)
        make_delayed(delayed)
        waiting = measure(delayed, seconds)
    bench.say(f"idle: {share:.2f} % of a core, {buffers:.1f} buffers a poll, {polls / seconds:.1f} polls/s")
    bench.say(f"{DELAYED:,} events wait: {waiting[0]:.2f} % of a core, {waiting[1]:.1f} buffers a poll; none: {nothing[0]:.2f} %, {nothing[1]:.1f}")
    note = f"{seconds} s over {rows:,} dead rows, {polls:,} polls"
    return [Answer("idle: relay and server", "% of a core", [share], must=1, aim=0.2, more=False, note=note),
            Answer("idle: buffers a poll", "buffers", [buffers], must=50, aim=20, more=False,
                   note=note + "; pg_stat_statements, all of the relay's statements"),
            Answer("idle, 100,000 events wait: relay and server", "% of a core", [waiting[0]], must=1, aim=0.2, more=False,
                   note=f"{waiting[1]:.1f} buffers a poll; over an empty table {nothing[0]:.2f} % and {nothing[1]:.1f}")]
