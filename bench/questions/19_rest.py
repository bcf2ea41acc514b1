"""What does a relay cost that has nothing to do, how soon does it wake, and what do busy producers pay for that?"""

import contextlib
import os
import random
import subprocess
import time
from dataclasses import dataclass

from bench import cpu
from bench.answer import Answer, BenchFailed
from bench.harness import Bench, last_stats, read_sql
from bench.table import number, spread
from bench.turns import between_floors
from tests.support import servers
from tests.support.postgres import RELAY_ROLE, bin_folders
from tests.support.process import find_program, wait_until

PLACE_S = 300  # for what a relay does once, when it begins
NEW_KEY = 1_000_000  # its event waits for nothing
CLIENTS = 32
PHASE_S = 2
SETTLE_S = 0.5  # after a trigger has come or gone: plans are made anew
LEAST_DELIVERED = 0.8  # of what is inserted, before the relay is stopped: or it was not busy
PAYLOAD = '{"note": "' + "x" * 288 + '"}'

INSERT = "insert into outbox.events (aggregateid, type, payload) values ('order-1', 'order.changed', '" + PAYLOAD + "')"
STATEMENTS = "select coalesce(sum(calls), 0) from pg_stat_statements where userid = %s::regrole"
RESTS = """select count(*) > 0 from pg_locks where locktype = 'advisory' and objsubid = 2 and mode = 'ShareLock' and granted
 and classid::bigint = -1818282541::bigint & 4294967295 and objid = 'outbox.events'::regclass
 and database = (select oid from pg_database where datname = current_database())"""


@dataclass
class Window:
    """What was used in some seconds: shares of a core in %."""

    seconds: float
    server: float
    relay: float = 0.0
    statements: int = 0  # the relay's


@dataclass
class Rest:
    place_s: float  # until the relay was at rest
    alone: list  # windows without a relay
    windows: list

    def statements(self):
        return [window.statements / window.seconds for window in self.windows]

    def shares(self):
        """With what the server uses beyond a server without a relay."""
        without = sorted(window.server for window in self.alone)[len(self.alone) // 2]
        return [window.relay + max(0.0, window.server - without) for window in self.windows]


# ---- a relay that has nothing to do ----

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


def make_delayed(idle, count):
    """Each holds back a key of its own. They are known to wait when the relay that is measured begins."""
    idle.append(count, count)
    idle.db.query("update outbox.events set not_before = now() + interval '1 day'")
    with running(idle) as relay:
        wait_until(lambda: idle.db.value("select count(*) from outbox.parked") == count, 120, "the relay to note what waits")
        if relay.stop() != 0:
            raise BenchFailed(f"the relay ended with {relay.exit_code}\n{relay.process.log_tail()}")
    idle.db.query("vacuum analyze outbox.events, outbox.parked")
    idle.db.query("checkpoint")


@contextlib.contextmanager
def running(bench):
    relay = bench.relay("{ type: discard }")
    try:
        relay.start()
        wait_until(lambda: relay.logged("relay.start"), what="the relay to start")
        yield relay
    finally:
        relay.close()


def look(idle, seconds, relay=None):
    used = lambda: (cpu.of_server(idle.postgres), cpu.of_process(relay.pid) if relay else 0)
    idle.db.query("select pg_stat_statements_reset()")
    begun, (server, own) = time.monotonic(), used()
    time.sleep(seconds)
    took_s, (server_then, own_then) = time.monotonic() - begun, used()
    if relay and not relay.running:
        raise BenchFailed(f"the relay ended\n{relay.process.log_tail()}")
    return Window(took_s, (server_then - server) / took_s * 100, (own_then - own) / took_s * 100,
                  int(idle.db.query(STATEMENTS, (RELAY_ROLE,))[0][0]))


def windows(idle, seconds, relay=None):
    return [look(idle, seconds / idle.run.pairs, relay) for _ in range(idle.run.pairs)]


def find_rest(idle, relay, rests):
    """Until the relay rests, or where it does not, until it has had time to find its place; how long that took."""
    begun = time.monotonic()
    if rests:
        wait_until(lambda: not relay.running or idle.db.value(RESTS), PLACE_S, "the relay to rest")
    else:
        time.sleep(3)
    took_s = time.monotonic() - begun
    time.sleep(1)  # from its locks to its rest there is a last look
    return took_s


def measure(idle, seconds, rests=True):
    """As many windows as there are pairs, of so many seconds in all; before them a third of that without a relay."""
    alone = windows(idle, seconds / 3)
    with running(idle) as relay:
        place_s = find_rest(idle, relay, rests)
        rest = Rest(place_s, alone, windows(idle, seconds, relay))
        if rests and not idle.db.value(RESTS):
            raise BenchFailed(f"the relay no longer rests\n{relay.process.log_tail()}")
        idle.append(1, NEW_KEY, first=NEW_KEY - 1)  # an idle relay is one that delivers what comes
        wait_until(lambda: not idle.db.query("select id from outbox.events where not_before is null limit 1"), 30,
                   "the idle relay to deliver an event")
        if relay.stop() != 0 or last_stats(relay)["delivered"] != "1":
            raise BenchFailed(f"the idle relay did not deliver one event\n{relay.process.log_tail()}")
        return rest


def say_rest(bench, what, rest):
    bench.say(f"{what}: {spread(rest.statements()) or number(rest.statements()[0])} statements/s, {spread(rest.shares()) or number(rest.shares()[0])} % of a "
              f"core; at rest {rest.place_s:.1f} s after its start")


def idle_answers(bench):
    rows, seconds = bench.run.size((5_000_000, 60), (200_000, 15))
    delayed_events, shorter_s = bench.run.size((100_000, 30), (20_000, 9))
    with servers.Postgres({"shared_preload_libraries": "pg_stat_statements"}, durable=True) as postgres:
        idle = Bench(postgres, bench.run, name="idle")
        idle.db.query("create extension pg_stat_statements")
        rests = {"rest": measure(idle, shorter_s)}
        idle.db.query("select outbox.uninstall_wake('outbox.events')")
        polled = measure(idle, shorter_s, rests=False)
        idle.db.query("select outbox.install_wake('outbox.events')")
        make_delayed(idle, delayed_events)
        rests[f"rest, {delayed_events:,} events wait"] = measure(idle, shorter_s)
        dead = Bench(postgres, bench.run, name="dead")
        dead.db.query("create extension pg_stat_statements")
        bench.say(f"making {rows:,} dead rows")
        with contextlib.closing(make_dead_rows(dead, rows)):
            rests[f"rest, {rows:,} dead rows"] = measure(dead, seconds)
    for what, rest in (*rests.items(), ("polled", polled)):
        say_rest(bench, what, rest)
    return answers_of_rests(rests, polled)


def answers_of_rests(rests, polled):
    answers = []
    for what, rest in rests.items():
        note = f"{sum(window.seconds for window in rest.windows):.0f} s, {rest.place_s:.1f} s after the start of the relay"
        answers += [Answer(f"{what}: statements a second", "statements/s", rest.statements(), must=0.05, aim=0, more=False, note=note),
                    Answer(f"{what}: relay and server", "% of a core", rest.shares(), must=0.05, aim=0, more=False,
                           note="the server's share beyond that of a server without a relay")]
    return [*answers, Answer("polled: statements a second", "statements/s", polled.statements(), more=False, note="a table without the waking trigger"),
            Answer("polled: relay and server", "% of a core", polled.shares(), more=False)]


# ---- the first event after a rest ----

def first_events(bench, count, rests):
    """(p50, p99) in ms of so many events, each of which comes when the relay has had nothing to do for more than a second."""
    bench.empty()
    bench.db.query(f"select outbox.{'install' if rests else 'uninstall'}_wake('outbox.events')")
    chance = random.Random(19)
    try:
        with running(bench) as relay, contextlib.closing(bench.db.connect()) as producer:
            producer.cursor().execute("do $$ begin end $$")  # loads plpgsql, which is not what is measured
            for _ in range(count):
                time.sleep(0.3)
                if rests:
                    wait_until(lambda: bench.db.value(RESTS), 30, "the relay to rest")
                else:
                    time.sleep(1.2)
                time.sleep(0.2 + chance.random() * 0.3)
                producer.cursor().execute(INSERT)
                wait_until(lambda: not bench.db.query("select id from outbox.events limit 1"), 30, "the event to be delivered")
            if relay.stop() != 0:
                raise BenchFailed(f"the relay ended with {relay.exit_code}\n{relay.process.log_tail()}")
            stats = last_stats(relay)
            if int(stats["delivered"]) != count:
                raise BenchFailed(f"the relay delivered {stats['delivered']} of {count} events")
            return float(stats["lag_p50_ms"]), float(stats["lag_p99_ms"])
    finally:
        bench.db.query("select outbox.install_wake('outbox.events')")


def first_answers(bench):
    count = bench.run.size(40, 8)
    answers = []
    for what, rests, must, aim in (("woken", True, 10, 3), ("polled", False, 200, None)):
        p50, p99 = first_events(bench, count, rests)
        bench.say(f"first event after a rest, {what}: p50 {p50:.1f} ms, p99 {p99:.1f} ms")
        answers.append(Answer(f"first event after a rest, {what}: p99", "ms", [p99], must=must, aim=aim, more=False,
                              note=f"{count} events; p50 {p50:.1f} ms" + ("" if rests else "; must: poll.max")))
    return answers


# ---- what producers pay while the relay is busy ----

WAYS = {  # how a trigger comes and goes
    "none": ("select 1", "select 1"),
    "wake": ("select outbox.install_wake('outbox.events')", "select outbox.uninstall_wake('outbox.events')"),
    "notify": (read_sql("rest_notify.sql"), "drop function public.notify_always cascade"),
}


class Producers:
    """pgbench, whose connections stay while triggers come and go: what a session does once is not measured."""

    def __init__(self, bench, seconds):
        self.bench = bench
        self.path = os.path.join(bench.folder, "rest_insert.sql")
        with open(self.path, "w", encoding="ascii") as file:
            file.write(read_sql("producer_insert.sql").replace("TABLE", "outbox.events").replace("PAYLOAD", PAYLOAD))
        command = [find_program("pgbench", *bin_folders()), "-n", "-M", "prepared", "-c", str(CLIENTS), "-j", "2", "-T", str(seconds), "-f", self.path,
                   bench.db.superuser_dsn]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def inserted(self):
        return self.bench.db.value("select last_value from outbox.events_id_seq")

    def rate(self, way):
        """Inserts a second in a phase of PHASE_S."""
        comes, goes = WAYS[way]
        self.bench.db.psql(comes)
        time.sleep(SETTLE_S)
        before, begun = self.inserted(), time.monotonic()
        time.sleep(PHASE_S)
        rate = (self.inserted() - before) / (time.monotonic() - begun)
        self.bench.db.psql(goes)
        if self.process.poll() is not None:
            raise BenchFailed(f"pgbench ended: {self.process.stderr.read()}")
        return rate

    def close(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.communicate()


def busy_answers(bench):
    rounds = bench.run.size(8, 3)
    bench.empty()
    bench.db.query("select outbox.uninstall_wake('outbox.events')")

    def say(at, runs):
        bench.say(f"round {at} of {rounds}: " + ", ".join(f"{name} {rate:,.0f}/s of {floor:,.0f}/s" for name, (floor, rate) in runs.items()))

    with running(bench) as relay, contextlib.closing(Producers(bench, 600)) as producers:
        for way in WAYS:
            producers.rate(way)
        measured = between_floors(lambda: producers.rate("none"), {way: (lambda way=way: producers.rate(way)) for way in ("wake", "notify")}, rounds, say)
        producers.close()
        if relay.stop() != 0:
            raise BenchFailed(f"the relay ended with {relay.exit_code}\n{relay.process.log_tail()}")
        delivered, left = int(last_stats(relay)["delivered"]), bench.db.value("select count(*) from outbox.events")
    if delivered < (delivered + left) * LEAST_DELIVERED:
        raise BenchFailed(f"the relay was not busy: {delivered:,} were delivered, {left:,} are left")
    bench.db.query("select outbox.install_wake('outbox.events')")
    note = f"floor: no trigger, before and after each phase of {PHASE_S} s; {CLIENTS} clients of pgbench, one insert a transaction, beside a busy relay"
    return [Answer(f"inserts of {CLIENTS} clients, waking trigger", "events/s", measured["wake"][1], measured["wake"][0], 0.95, 0.98, note=note),
            Answer(f"inserts of {CLIENTS} clients, NOTIFY at each commit", "events/s", measured["notify"][1], measured["notify"][0], note=note)]


def ask(bench):
    return idle_answers(bench) + first_answers(bench) + busy_answers(bench)
