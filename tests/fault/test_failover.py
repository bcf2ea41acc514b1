"""PostgreSQL fails over to a standby, or restarts because one of its processes died."""

import os
import signal
from contextlib import closing, contextmanager

import psycopg2
import pytest

from tests.conftest import migrate
from tests.support import servers
from tests.support.fault_run import FaultRun
from tests.support.postgres import RELAY_ROLE
from tests.support.servers import wait_until
from tests.support.shop import Shop
from tests.support.statement_log import StatementLog
from tests.support.targets import FileTarget

DURABLE = {"synchronous_commit": "on"}


class Pair:
    """A primary, its standby, a shop on the first and a relay that goes to whichever takes writes."""

    def __init__(self, relay, tmp_path, primary):
        self.primary = primary
        database = primary.create_database()
        migrate(database)
        self.run = FaultRun(relay, Shop(database), FileTarget(tmp_path / "events.jsonl"))
        self.standby = None

    def start_relay(self, **options):
        both = (f"host=127.0.0.1,127.0.0.1 port={self.primary.port},{self.standby.port} dbname={self.run.db.name} user={RELAY_ROLE}"
                " target_session_attrs=read-write")
        one = self.run.start(database=both, **options)
        wait_until(lambda: one.logged("relay.start"), 30, "the relay to start")

    def left_at_the_standby(self):
        return self.standby.query("select count(*) from public.events", dbname=self.run.db.name)[0][0]

    def promote(self):
        """The primary dies, unless it is dead; the standby takes its place."""
        self.primary.stop("immediate")
        self.standby.query("select pg_promote()")
        self.run.shop.db = servers.Database(self.standby, self.run.db.name)


@contextmanager
def pair(relay, tmp_path):
    with servers.Postgres(settings=DURABLE) as primary:
        both = Pair(relay, tmp_path, primary)
        with servers.Standby(primary, DURABLE) as both.standby:
            yield both


def test_a_failover_to_a_synchronous_standby_loses_nothing(relay, tmp_path):
    with pair(relay, tmp_path) as both:
        both.primary.query("alter system set synchronous_standby_names = 'standby'")
        both.primary.query("select pg_reload_conf()")
        wait_until(lambda: both.primary.query("select 1 from pg_stat_replication where sync_state = 'sync'"), 30,
                   "the standby to be synchronous")
        both.run.add(4000, keys=100)
        both.start_relay(keys_per_claim=16, max_events_per_key=4)
        both.run.wait_for(500)
        both.promote()
        both.run.add(500, keys=100)  # there is something left to do, however fast the relay is
        # One relay knows the outcome of everything it sent, and what it settled is on the standby, too.
        assert both.run.finish() == 0
        both.run.no_failures()


def test_a_failover_to_a_lagging_standby_brings_back_what_it_had_not_heard_of(relay, tmp_path):
    """Events that were settled after the standby stopped to listen are there again, and come a second time, in order. No
    more than those, and nothing that the standby knew of is lost."""
    with pair(relay, tmp_path) as both:
        both.run.add(1000, keys=50)
        wait_until(lambda: both.left_at_the_standby() == 1000, 30, "the standby to have the events")
        both.standby.query("alter system set primary_conninfo = ''")
        both.standby.query("select pg_reload_conf()")
        wait_until(lambda: not both.primary.query("select 1 from pg_stat_replication"), 30, "the standby to hear no more")
        both.start_relay(keys_per_claim=16, max_events_per_key=4)
        both.run.wait_for(600)
        assert both.left_at_the_standby() == 1000
        both.primary.stop("immediate")
        both.run.wait_for_silence()  # what was claimed goes on
        both.run.fault("failover to a standby that lags behind", in_flight=both.run.target.count())
        both.promote()
        assert both.run.finish() >= 500


@pytest.mark.parametrize("owner, delivered", [("backend", 1), ("name", 0)])
def test_a_lease_that_ends_with_its_server_waits_for_no_standby(relay, tmp_path, owner, delivered):
    """Others have to be safe before anything is sent: their holder goes on when the server is back."""
    with servers.Postgres(settings=DURABLE) as server:
        database = server.create_database()
        migrate(database)
        run = FaultRun(relay, Shop(database), FileTarget(tmp_path / "events.jsonl"))
        run.start_running(ordering="lease", lease=f"{{ owner: {owner} }}")
        wait_until(lambda: len(sessions(database)) == 3, 30, "the relay to be connected")
        server.query("alter system set synchronous_standby_names = 'nobody'")
        server.query("select pg_reload_conf()")
        with closing(database.connect()) as producer:
            producer.cursor().execute("set synchronous_commit = local")
            run.shop.insert([1], producer)
        run.wait_for(delivered, 30)
        waiting = "select 1 from pg_stat_activity where wait_event = 'SyncRep' and application_name = 'pgcourier'"
        wait_until(lambda: server.query(waiting), 30, "a commit that waits for a standby")
        assert run.target.count() == delivered
        server.query("alter system reset synchronous_standby_names")
        server.query("select pg_reload_conf()")
        assert run.finish() == 0


def test_the_death_of_one_backend_restarts_the_server_and_costs_nothing_more(relay, tmp_path):
    """SIGKILL of any process makes PostgreSQL end all sessions and recover as after a crash."""
    with servers.Postgres(settings=DURABLE) as server:
        database = server.create_database()
        migrate(database)
        run = FaultRun(relay, Shop(database), FileTarget(tmp_path / "events.jsonl"))
        run.add(3000, keys=100)
        run.start_running(keys_per_claim=16, max_events_per_key=4)
        for turn in range(1, 4):
            run.wait_for(500 * turn)
            old = wait_until(lambda: sessions(database), 30, "sessions of the relay")
            os.kill(min(old), signal.SIGKILL)
            # The others are still there until the server has noticed.
            wait_until(lambda old=old: (now := sessions(database)) is not None and not now & old, 60, "the server to be back")
        assert run.finish() == 0


@pytest.mark.parametrize("restart", [True, False], ids=["after a crash", "the sessions alone"])
def test_ids_that_are_drawn_a_second_time_while_the_relay_is_away_keep_the_order(relay, tmp_path, restart):
    """A server that has lost its last transactions draws their ids again. When the relay is back they are no news: the
    sequence is already beyond what it was when it left."""
    with servers.Postgres(settings=DURABLE) as server:
        database = server.create_database()
        migrate(database)
        run = FaultRun(relay, Shop(database), FileTarget(tmp_path / "events.jsonl"))
        run.add(500, keys=10)
        statements = StatementLog(database)
        run.start_running()
        run.wait_until_empty()
        statements.forget()
        statements.wait_for_probes(3)
        database.query(f"alter role {RELAY_ROLE} nologin")
        if restart:
            server.restart("immediate")
        else:
            database.query("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pgcourier'")
        database.query("select setval('public.events_id_seq', 400)")
        run.shop.journal.clear()
        first = run.add(300, keys=10)
        assert first[0].id == 401 and first[-1].id == 700
        database.query(f"alter role {RELAY_ROLE} login")
        run.wait_for(800)
        run.wait_until_empty()
        run.stop()
        assert order_of(run.target.receipts()[500:]) == order_of(first)


def test_ids_that_are_drawn_a_second_time_behind_a_pooler_keep_the_order(relay, tmp_path):
    """The pooler has kept the relay's connections, so that the crash is none of them: only what the server says of itself
    tells it from one that has drawn those ids once."""
    with servers.Postgres(settings=DURABLE) as server:
        database = server.create_database()
        migrate(database)
        run = FaultRun(relay, Shop(database), FileTarget(tmp_path / "events.jsonl"))
        run.add(500, keys=10)
        statements = StatementLog(database)
        with servers.PgBouncer(server) as pooler:
            run.start_running(database=pooler.dsn(database.name))
            run.wait_until_empty()
            statements.forget()
            statements.wait_for_probes(3)
            database.query("select outbox.pause('shop')")  # nothing is claimed before it has asked again
            run.wait_for_log("queue.paused")
            pooler.tell("pause")
            crash(database)
            database.query("select setval('public.events_id_seq', 400)")
            run.shop.journal.clear()
            first = run.add(300, keys=10)
            assert first[0].id == 401 and first[-1].id == 700
            statements.forget()
            pooler.tell("resume")
            statements.wait_for_probes(2)
            database.query("select outbox.resume('shop')")
            run.wait_for(800)
            run.wait_until_empty()
            assert not run.logged("database.down")
            run.stop()
        assert order_of(run.target.receipts()[500:]) == order_of(first)


def order_of(events):
    keys = {}
    for one in events:
        keys.setdefault(one.key, []).append(one.id)
    return keys


def crash(database):
    """One of the server's processes dies. The server stays, ends all sessions and recovers."""
    victim = database.connect()
    pid = victim.info.backend_pid
    os.kill(pid, signal.SIGKILL)

    def recovered():
        try:
            return database.query("select pid from pg_stat_activity where pid = %s", (pid,)) == []
        except psycopg2.OperationalError:
            return False

    wait_until(recovered, 60, "the server to be back")


def sessions(db):
    """The relay's, as process ids; None while the server takes no connections."""
    try:
        return {pid for pid, in db.query("select pid from pg_stat_activity where application_name = 'pgcourier'"
                                         " and datname = current_database()")}
    except psycopg2.OperationalError:
        return None
