"""What does a relay cost that has nothing to do: over dead rows that a snapshot keeps, over none, beside events that wait?"""

import statistics
import time
from dataclasses import dataclass

from bench import cpu
from bench.answer import Answer, BenchFailed
from bench.harness import Bench, last_stats
from bench.table import number, spread
from tests.support import servers
from tests.support.postgres import RELAY_ROLE
from tests.support.process import wait_until

PLACE_S = 300  # for what a relay does once, when it begins
NEW_KEY = 1_000_000  # its event waits for nothing
CLAIM, PEEK = "pg_try_advisory_xact_lock", "as news"  # in what claims and in what an idle queue asks instead, and nowhere else

FIRST = "select coalesce(sum(shared_blks_hit + shared_blks_read), 0) from pg_stat_statements where userid = %s::regrole and query ~ 'as floor'"
COSTS = """
select coalesce(sum(calls) filter (where query ~ %(claim)s), 0), coalesce(sum(calls) filter (where query ~ %(peek)s), 0),
       coalesce(sum(shared_blks_hit + shared_blks_read) filter (where query ~ %(claim)s), 0),
       coalesce(sum(shared_blks_hit + shared_blks_read) filter (where query ~ %(peek)s), 0),
       coalesce(sum(shared_blks_hit + shared_blks_read), 0)
from pg_stat_statements where userid = %(relay)s::regrole and dbid = (select oid from pg_database where datname = current_database())"""


@dataclass
class Window:
    """What a relay without work has used in some seconds."""

    seconds: float
    share: float  # of a core, in %, with the server's
    claims: int
    peeks: int
    claim_buffers: int
    peek_buffers: int
    buffers: int  # of all its statements


@dataclass
class Idle:
    place_s: float  # until the relay was idle
    windows: list

    def shares(self):
        return [window.share for window in self.windows]

    def a_poll(self):
        return [window.buffers / (window.claims + window.peeks) for window in self.windows]

    def a_claim(self):
        return [window.claim_buffers / window.claims for window in self.windows]

    def a_peek(self):
        return [window.peek_buffers / window.peeks for window in self.windows]

    def sum(self, name):
        return sum(getattr(window, name) for window in self.windows)

    def buffers_said(self):
        """A claim's transaction and the clock have statements besides: all there are, over all polls, is more than either alone shows."""
        polls = self.sum("claims") + self.sum("peeks")
        return (f"{number(statistics.median(self.a_claim()))} buffers a claim, {number(statistics.median(self.a_peek()))} a peek; of all "
                f"statements {self.sum('buffers') / polls:.1f} a poll, {self.sum('buffers') / self.sum('seconds'):.0f} a second")


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


def find_place(idle, quiet_s):
    """Until the relay has looked once at everything that is dead, a stretch of ids a second; how long that took. Of what waits it
    asks on for the first one, which takes a few pages each time."""
    begun, read, since = time.monotonic(), 0, time.monotonic()
    while time.monotonic() - since < quiet_s:
        if time.monotonic() - begun > PLACE_S:
            raise BenchFailed(f"the relay still looks for the first event after {PLACE_S} s")
        time.sleep(0.5)
        before, read = read, idle.db.query(FIRST, (RELAY_ROLE,))[0][0]
        if read > before + 100:
            since = time.monotonic()
    return since - begun


def look(idle, relay, seconds):
    idle.db.query("select pg_stat_statements_reset()")
    begun, used = time.monotonic(), cpu.of_process(relay.pid) + cpu.of_server(idle.postgres)
    time.sleep(seconds)
    used = cpu.of_process(relay.pid) + cpu.of_server(idle.postgres) - used
    took_s = time.monotonic() - begun
    costs = map(int, idle.db.query(COSTS, {"claim": CLAIM, "peek": PEEK, "relay": RELAY_ROLE})[0])
    window = Window(took_s, used / took_s * 100, *costs)
    if not relay.running or window.claims == 0 or window.peeks == 0:
        raise BenchFailed(f"the relay claimed {window.claims} times and peeked {window.peeks} times\n{relay.process.log_tail()}")
    return window


def measure(idle, seconds):
    """As many windows as there are pairs, of so many seconds in all."""
    relay = idle.relay("{ type: discard }")
    try:
        relay.start()
        wait_until(lambda: relay.logged("relay.start"), what="the relay to start")
        place_s = find_place(idle, idle.run.size(5, 2.5))
        windows = [look(idle, relay, seconds / idle.run.pairs) for _ in range(idle.run.pairs)]
        proof(idle, relay)
        return Idle(place_s, windows)
    finally:
        relay.close()


def proof(idle, relay):
    """An idle relay is one that would deliver what comes."""
    idle.append(1, NEW_KEY, first=NEW_KEY - 1)
    wait_until(lambda: not idle.db.query("select id from outbox.events where not_before is null limit 1"), 30,
               "the idle relay to deliver an event")
    if relay.stop() != 0 or last_stats(relay)["delivered"] != "1":
        raise BenchFailed(f"the idle relay did not deliver one event\n{relay.process.log_tail()}")


def make_delayed(idle, count):
    """Each holds back a key of its own. They are known to wait when the relay that is measured begins."""
    idle.append(count, count)
    idle.db.query("update outbox.events set not_before = now() + interval '1 day'")
    relay = idle.relay("{ type: discard }")
    try:
        relay.start()
        wait_until(lambda: idle.db.value("select count(*) from outbox.parked") == count, 120, "the relay to note what waits")
        if relay.stop() != 0:
            raise BenchFailed(f"the relay ended with {relay.exit_code}\n{relay.process.log_tail()}")
    finally:
        relay.close()
    idle.db.query("vacuum analyze outbox.events, outbox.parked")
    idle.db.query("checkpoint")


def said(what, idle):
    return (f"idle, {what}: {number(statistics.median(idle.shares()))} % of a core ({spread(idle.shares())}); {idle.buffers_said()}; it was idle "
            f"{idle.place_s:.1f} s after its start")


def ask(bench):
    rows, seconds = bench.run.size((5_000_000, 60), (200_000, 15))
    delayed_events, shorter_s = bench.run.size((100_000, 30), (20_000, 6))
    with servers.Postgres({"shared_preload_libraries": "pg_stat_statements"}, durable=True) as postgres:
        idle = Bench(postgres, bench.run, name="idle")
        idle.db.query("create extension pg_stat_statements")
        bench.say(f"making {rows:,} dead rows")
        holder = make_dead_rows(idle, rows)
        dead = measure(idle, seconds)
        bench.say(said(f"{rows:,} dead rows", dead))
        holder.close()
        delayed = Bench(postgres, bench.run, name="delayed")
        delayed.db.query("create extension pg_stat_statements")
        empty = measure(delayed, shorter_s)
        bench.say(said("an empty table", empty))
        make_delayed(delayed, delayed_events)
        waiting = measure(delayed, shorter_s)
        bench.say(said(f"{delayed_events:,} events wait", waiting))
    return answers(rows, dead, empty, delayed_events, waiting)


def answers(rows, dead, empty, delayed_events, waiting):
    note = (f"{dead.sum('seconds'):.0f} s over {rows:,} dead rows, {dead.sum('peeks'):,} peeks and {dead.sum('claims'):,} claims; {dead.place_s:.0f} s "
            "after the start, when all of them had been looked at once")
    return [Answer("idle: relay and server", "% of a core", dead.shares(), must=1, aim=0.2, more=False, note=note),
            Answer("idle: buffers a poll", "buffers", dead.a_poll(), must=50, aim=20, more=False,
                   note="all of the relay's statements, by pg_stat_statements, over claims and peeks"),
            Answer("idle: buffers of a claim's statement that locks", "buffers", dead.a_claim(), more=False, note=dead.buffers_said()),
            Answer("idle: buffers of a peek", "buffers", dead.a_peek(), more=False, note="what an idle queue asks instead of claiming"),
            Answer(f"idle, {delayed_events:,} events wait: relay and server", "% of a core", waiting.shares(), must=1, aim=0.2, more=False,
                   note=waiting.buffers_said()),
            Answer("idle, an empty table: relay and server", "% of a core", empty.shares(), more=False, note=empty.buffers_said())]
