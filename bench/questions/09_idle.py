"""What does a relay cost that has nothing to do: over millions of dead rows that an old snapshot keeps; beside 100,000
events that wait for their time?"""

import time
from dataclasses import dataclass

from bench import cpu
from bench.answer import Answer, BenchFailed
from bench.harness import Bench, last_stats
from tests.support import servers
from tests.support.postgres import RELAY_ROLE
from tests.support.process import wait_until

PLACE_S = 300  # for what a relay does once, when it begins
DELAYED = 100_000
NEW_KEY = 1_000_000  # its event waits for nothing
CLAIM, PEEK = "pg_try_advisory_xact_lock", "as news"  # in a claim and in what an idle queue asks instead, and nowhere else

FIRST = "select coalesce(sum(shared_blks_hit + shared_blks_read), 0) from pg_stat_statements where userid = %s::regrole and query ~ 'as floor'"
COSTS = """
select coalesce(sum(calls) filter (where query ~ %s), 0), coalesce(sum(calls) filter (where query ~ %s), 0),
       coalesce(sum(shared_blks_hit + shared_blks_read) filter (where query ~ %s), 0), coalesce(sum(shared_blks_hit + shared_blks_read), 0)
from pg_stat_statements where userid = %s::regrole and dbid = (select oid from pg_database where datname = current_database())"""


@dataclass
class Idle:
    """What a relay without work has used."""

    place_s: float  # until it was idle
    share: float  # of a core, in %
    seconds: float
    claims: int
    peeks: int
    peek_buffers: int
    buffers: int  # of all its statements

    @property
    def polls(self):
        return self.claims + self.peeks

    @property
    def a_poll(self):
        return self.buffers / self.polls

    def buffers_said(self):
        """What is no peek's is put down to the claims: they are nearly all of it."""
        return (f"{(self.buffers - self.peek_buffers) / max(self.claims, 1):.1f} buffers a claim, "
                f"{self.peek_buffers / max(self.peeks, 1):.1f} a peek, {self.buffers / self.seconds:.0f} a second")


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


def find_place(idle):
    """Until the relay has looked once at everything that is dead, a stretch of ids a second; how long that took. Of what waits it
    asks on for the first one, which takes a few pages each time."""
    begun, read, since = time.monotonic(), 0, time.monotonic()
    while time.monotonic() - since < 5:
        if time.monotonic() - begun > PLACE_S:
            raise BenchFailed(f"the relay still looks for the first event after {PLACE_S} s")
        time.sleep(0.5)
        before, read = read, idle.db.query(FIRST, (RELAY_ROLE,))[0][0]
        if read > before + 100:
            since = time.monotonic()
    return since - begun


def measure(idle, seconds):
    relay = idle.relay("{ type: discard }")
    try:
        relay.start()
        wait_until(lambda: relay.logged("relay.start"), what="the relay to start")
        place_s = find_place(idle)
        idle.db.query("select pg_stat_statements_reset()")
        begun, used = time.monotonic(), cpu.of_process(relay.pid) + cpu.of_server(idle.postgres)
        time.sleep(seconds)
        used = cpu.of_process(relay.pid) + cpu.of_server(idle.postgres) - used
        took_s = time.monotonic() - begun
        claims, peeks, peek_buffers, buffers = map(int, idle.db.query(COSTS, (CLAIM, PEEK, PEEK, RELAY_ROLE))[0])
        if not relay.running or claims + peeks == 0:
            raise BenchFailed(f"the relay did not poll\n{relay.process.log_tail()}")
        proof(idle, relay)
        return Idle(place_s, used / took_s * 100, took_s, claims, peeks, peek_buffers, buffers)
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
        dead = measure(idle, seconds)
        holder.close()
        delayed = Bench(postgres, bench.run, name="delayed")
        delayed.db.query("create extension pg_stat_statements")
        nothing = measure(delayed, seconds)
        make_delayed(delayed)
        waiting = measure(delayed, seconds)
    for what, used in ((f"{rows:,} dead rows", dead), (f"{DELAYED:,} events wait", waiting), ("no event", nothing)):
        bench.say(f"idle, {what}: {used.share:.2f} % of a core, {used.a_poll:.1f} buffers a poll, {used.polls / used.seconds:.1f} polls/s; "
                  f"{used.buffers_said()}; it was idle {used.place_s:.1f} s after its start")
    note = f"{seconds} s over {rows:,} dead rows, {dead.polls:,} polls, {dead.claims:,} of them claims; {dead.place_s:.0f} s after the start, when all of them had been looked at once"
    return [Answer("idle: relay and server", "% of a core", [dead.share], must=1, aim=0.2, more=False, note=note),
            Answer("idle: buffers a poll", "buffers", [dead.a_poll], must=50, aim=20, more=False,
                   note=f"{note}; pg_stat_statements, all of the relay's statements; {dead.buffers_said()}"),
            Answer("idle, 100,000 events wait: relay and server", "% of a core", [waiting.share], must=1, aim=0.2, more=False,
                   note=f"{waiting.a_poll:.1f} buffers a poll; {waiting.buffers_said()}; over an empty table {nothing.share:.2f} % and "
                        f"{nothing.a_poll:.1f}; {nothing.buffers_said()}")]
