"""The database fails in mid-drain, in every way it can; the relay backs off, goes on, and the history stays right."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import psycopg2
import pytest

from tests.conftest import migrate
from tests.support import servers
from tests.support.fault_run import FaultRun
from tests.support.postgres import RELAY_ROLE
from tests.support.servers import Reply, wait_until
from tests.support.shop import Shop
from tests.support.targets import FileTarget, HttpTarget

KEYS = 200
DEEP = os.environ.get("PGCOURIER_DEEP") == "1"


def fault_run(start, db, folder):
    return FaultRun(start, Shop(db), FileTarget(folder / "events.jsonl", sync=False), KEYS)


@pytest.fixture
def drain(relay, db, tmp_path):
    return fault_run(relay, db, tmp_path)


@contextmanager
def private_cluster(relay, tmp_path, **settings):
    """A run on a server of its own, whose commits survive a crash of the server."""
    with servers.Postgres(settings={"synchronous_commit": "on", **settings}) as server:
        database = server.create_database()
        migrate(database)
        yield fault_run(relay, database, tmp_path)


BACKENDS = "from pg_stat_activity where application_name = 'pgcourier' and datname = current_database()"


def kill_a_backend(drain, which="true"):
    """The one that has been there for longest, so that each connection comes to its turn; returns when it is gone and its
    relay knows."""
    before = len(drain.logged("msg=database.down"))
    oldest = f"select pid {BACKENDS} and {which} order by backend_start limit 1"
    pid = wait_until(lambda: drain.db.query(oldest), 60, "a backend to terminate")[0][0]
    assert drain.db.value("select pg_terminate_backend(%s)", (pid,))
    wait_until(lambda: not drain.db.query(f"select 1 {BACKENDS} and pid = %s", (pid,)), 60, "the backend to end")
    wait_until(lambda: len(drain.logged("msg=database.down")) > before, 60, "the relay to notice")


@contextmanager
def running_with_a_locked_table(drain, mode="exclusive", relays=1):
    """"access exclusive" keeps relays from reading it, as they must have done before they claim; "exclusive" only from deleting
    what was delivered, and before it is locked they must not have begun: they might have deleted all."""
    if mode != "exclusive":
        drain.start_running(relays)
        drain.wait_for(500)
    with closing(drain.db.connect(autocommit=False)) as connection:
        connection.cursor().execute(f"lock table public.events in {mode} mode")
        if mode == "exclusive":
            drain.start_running(relays)
        yield


def start_and_kill_a_claims_backend(drain, relays):
    """While it waits to delete what has been delivered."""
    settles = "wait_event_type = 'Lock' and pid in (select pid from pg_locks where locktype = 'advisory' and objsubid = 2)"
    with running_with_a_locked_table(drain, relays=relays):
        drain.harm()
        kill_a_backend(drain, settles)
        drain.wait_for_log("msg=claim.lost")


def each_kind_was_lost(drain):
    return all(drain.logged(f"msg=database.down .*connection={kind}") for kind in ("claim", "side"))


def test_terminated_backends_cost_no_event_and_no_order(drain):
    drain.add(2000)
    start_and_kill_a_claims_backend(drain, relays=2)
    for _ in range(100 if DEEP else 20):
        drain.harm()
        kill_a_backend(drain)
        drain.add(200)
    drain.finish(lost_claims=True)
    assert each_kind_was_lost(drain)


@pytest.mark.deep
def test_backends_that_stand_still_are_given_up(drain):
    """Neither the server nor the network ends what they were asked."""
    drain.add(500)
    drain.start_running(relays=1, top="statement_timeout: 100ms")
    drain.wait_for(100)
    backends = [row[0] for row in drain.db.query(f"select pid {BACKENDS}")]
    drain.harm()
    for pid in backends:
        os.kill(pid, signal.SIGSTOP)
    try:
        drain.add(500)
        drain.wait_for_log("msg=database.down.*has not answered in time", 60)
    finally:
        for pid in backends:
            os.kill(pid, signal.SIGCONT)
    drain.finish(lost_claims=True)


def test_one_relay_whose_backends_are_terminated_sends_nothing_twice(drain):
    """It knows the outcome of everything it sent, so there is nothing to repeat."""
    drain.add(10000)
    start_and_kill_a_claims_backend(drain, relays=1)
    for share in range(1, 9):
        drain.wait_for(share * 1000)
        kill_a_backend(drain)
    drain.finish()
    assert each_kind_was_lost(drain)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_of_the_server_is_survived(relay, tmp_path, mode):
    with private_cluster(relay, tmp_path) as drain:
        drain.add(10000)
        drain.start_running(relays=2)
        wait_until(lambda: drain.db.value(f"select count(*) {BACKENDS}") == 6, 30, "all connections of both")
        drain.wait_for(1000)
        drain.harm()
        drain.db.server.restart(mode)
        drain.finish(lost_claims=True)
        assert all(one.logged("msg=database.down") for one in drain.relays)


@pytest.mark.parametrize("owner", ["backend", "name"])
def test_a_crash_of_the_server_may_cost_leases_and_no_event(relay, tmp_path, owner):
    """Those that end with a backend anyway are not safe from it."""
    places, events_per_key = 32, 4
    with private_cluster(relay, tmp_path) as drain:
        drain.add(10000)
        drain.start_running(relays=2, ordering="lease", lease=f"{{ owner: {owner}, duration: 2s }}", max_events_per_key=events_per_key,
                            sink={"max_in_flight": places})
        drain.wait_for(1000)
        for one in drain.relays:
            drain.fault("leases lost", in_flight=places * events_per_key, relay=one)
        drain.db.server.restart("immediate")
        drain.finish()


def test_a_server_that_stays_away_is_waited_for(relay, tmp_path):
    with private_cluster(relay, tmp_path) as drain:
        drain.add(10000)
        drain.start_running()
        drain.wait_for(1000)
        drain.db.server.stop()
        drain.wait_for_log("msg=database.down")
        time.sleep(3)
        assert drain.relays[0].exit_code is None
        drain.db.server.start()
        started = time.monotonic()
        drain.wait_for(drain.target.count() + 1)
        assert time.monotonic() - started < 20, "it was waited for too long"
        drain.finish()


@pytest.mark.parametrize("mode", ["access exclusive", pytest.param("exclusive", marks=pytest.mark.deep)])
def test_a_locked_table_is_waited_for(drain, mode):
    """The first keeps the relay from reading, the second only from deleting what was delivered."""
    drain.add(6000)
    with running_with_a_locked_table(drain, mode):
        drain.wait_for_log("lock_timeout")
    drain.finish()


@pytest.mark.parametrize("mode, what", [("access exclusive", "claim"), ("exclusive", "settle")])
def test_a_cancelled_statement_is_repeated(drain, mode, what):
    """One that is sure to be under way: it waits for the table."""
    drain.add(6000)
    said = rf"msg={what}\.failed .*user request.*SQLSTATE 57014"

    def cancelled():
        sent = drain.db.query(f"select pg_cancel_backend(pid) {BACKENDS} and state = 'active' and wait_event_type = 'Lock'")
        return (True,) in sent and drain.logged(said)

    with running_with_a_locked_table(drain, mode):
        wait_until(cancelled, 60, f"a line with {said}")
    drain.finish()


def lock_row(connection, event):
    connection.cursor().execute("select from public.events where id = %s for update", (event.id,))


def lock_row_for_a_moment(connection, event):
    connection.cursor().execute("savepoint before")
    lock_row(connection, event)
    connection.cursor().execute("rollback to before")


def test_a_deadlock_is_survived(drain):
    """Of a key's three events `other` has locked the last, and then waits for the first. A relay deletes them in the order in
    which they lie, here that of their ids: it has locked the first by then, and waits for the second, which `third` holds until then. Its next wait closes
    the circle, and it is the relay that finds it, as the other has an hour's patience."""
    db = drain.db
    db.query(f"alter database {db.name} set deadlock_timeout = '10ms'")
    events = drain.add(3, keys=1)
    with closing(db.connect(autocommit=False)) as third, closing(db.connect(autocommit=False)) as other, ThreadPoolExecutor(1) as pool:
        other.cursor().execute("set deadlock_timeout = '1h'")
        lock_row(third, events[1])
        lock_row(other, events[2])
        drain.start_running(connections=1)
        relays = f"select pid {BACKENDS} and {third.get_backend_pid()} = any (pg_blocking_pids(pid))"
        asked = []

        def in_a_row():
            if db.query(relays) and all(one.done() for one in asked):  # done: the relay had waited for too long, and let go
                asked.append(pool.submit(lock_row_for_a_moment, other, events[0]))
            return db.query(f"{relays} and pid = any (pg_blocking_pids({other.get_backend_pid()}))")

        wait_until(in_a_row, 60, "the relay and the other to wait")
        third.rollback()
        drain.wait_for_log(r"msg=settle\.failed .*SQLSTATE 40P01")
        asked[-1].result()
        other.rollback()
    drain.add(2000)
    drain.finish()


def test_an_idle_timeout_of_the_role_does_not_end_slow_deliveries(relay, db, http):
    """The relay sets its own, for the session or, where a pooler shares that, for its transaction."""
    shop, target = Shop(db), HttpTarget(http)
    db.query(f"alter database {db.name} set idle_in_transaction_session_timeout = '300ms'")
    http.respond = lambda request: Reply(200, delay_s=0.8)
    for top in ("", "prepared: off"):
        shop.add(40, 20)
        one = relay(shop.config(target.sink(), top=top, latency="1s", poll="{ max: 1s }"), until_empty=True)
        assert one.wait() == 0
        assert not one.logged("claim.lost")
    shop.check(target.receipts())


@pytest.mark.deep
def test_a_transaction_that_waits_for_a_delivery_does_not_stand_still(relay, db, http):
    """Row locks end with their transaction: the relay says a word in it each minute. A pooler's own limit no setting of ours
    reaches."""
    shop, target = Shop(db), HttpTarget(http)
    db.query(f"grant update (id) on public.events to {RELAY_ROLE}")
    shop.add(4, 4)
    http.respond = lambda request: Reply(200, delay_s=100)
    with servers.PgBouncer(db.server, settings={"idle_transaction_timeout": 75}, user=RELAY_ROLE) as bouncer:
        config = shop.config(target.sink(timeout="3m"), database=bouncer.dsn(db.name), ordering="unordered", locks="rows")
        assert (one := relay(config, until_empty=True)).wait(timeout_s=300) == 0
    assert not one.logged("claim.lost") and not one.logged("database.down")
    shop.check(target.receipts())


def test_a_full_lock_table_is_survived(relay, tmp_path):
    """Twenty slots are left when the relay wants 128."""
    with private_cluster(relay, tmp_path, max_connections="20", max_locks_per_transaction="64") as drain:
        hog = drain.db.connect()
        with hog.cursor() as cursor:
            with pytest.raises(psycopg2.OperationalError, match="out of shared memory"):
                cursor.execute("select pg_advisory_lock(9, n) from generate_series(1, 100000) as n")
            cursor.execute("select count(pg_advisory_unlock(9, n)) from generate_series(1, 20) as n")
        drain.add(5000, keys=1000)
        drain.start_running(keys_per_claim=64)
        drain.wait_for_log("lock table is full")
        assert drain.relays[0].exit_code is None
        hog.close()
        drain.finish()


def test_a_server_that_turns_read_only_is_waited_for(relay, tmp_path):
    with private_cluster(relay, tmp_path) as drain:
        db = drain.db
        drain.add(5000)
        drain.start_running()
        drain.wait_for(500)
        db.query("alter system set default_transaction_read_only = on")
        db.query("select pg_reload_conf()")
        db.query("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pgcourier'")
        drain.wait_for_log("read-only")
        assert drain.relays[0].exit_code is None
        db.psql("set default_transaction_read_only = off; alter system reset default_transaction_read_only;"
                " select pg_reload_conf();", check=False)
        drain.add(2000)
        drain.finish()


def test_a_standby_is_waited_for_until_it_is_promoted(relay, tmp_path):
    with private_cluster(relay, tmp_path) as drain:
        db = drain.db
        drain.add(500)
        with servers.Standby(db.server) as standby:
            drain.start_running(database=standby.dsn(db.name, RELAY_ROLE))
            drain.wait_for_log("in recovery or read-only; waiting for a primary")
            time.sleep(1)
            assert drain.target.count() == 0 and drain.relays[0].exit_code is None
            wait_until(lambda: standby.query("select count(*) from public.events", dbname=db.name) == [(500,)])
            db.server.stop("fast")
            standby.query("select pg_promote()")
            drain.shop.db = servers.Database(standby, db.name)
            drain.finish()


def relay_role(db):
    """A login role with the relay's rights and no others; returns its connection string."""
    role = f"relay_{db.name}"
    db.query(f"create role {role} login in role outbox_relay")
    db.query("select outbox.grant_relay('public.events')")
    return role, db.server.dsn(db.name, role)


@pytest.fixture
def role(drain):
    name, dsn = relay_role(drain.db)
    yield name, dsn
    drain.db.query(f"drop role {name}")


def test_a_privilege_that_goes_and_comes_back_costs_nothing(drain, role):
    drain.add(20000)
    drain.start_running(database=role[1])
    drain.wait_for(500)
    drain.db.query("revoke delete on public.events from outbox_relay")
    drain.wait_for_log("SQLSTATE 42501")
    drain.wait_for_silence()
    assert drain.target.count() < 20000
    drain.db.query("grant delete on public.events to outbox_relay")
    drain.finish()
    assert not drain.logged("SQLSTATE 26000"), "it blames a pooler for statements that it failed to prepare"


def test_a_table_that_is_renamed_away_and_back_is_waited_for(drain):
    drain.add(4000)
    drain.start_running()
    drain.wait_for(500)
    drain.db.query("alter table public.events rename to elsewhere")
    drain.wait_for_log("SQLSTATE 42P01")
    time.sleep(0.5)
    drain.db.query("alter table public.elsewhere rename to events")
    drain.finish()


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_the_roles_isolation_level_does_not_matter(drain, role, isolation):
    drain.db.query(f"alter role {role[0]} set default_transaction_isolation = '{isolation}'")
    drain.add(4000)
    drain.start_running(relays=3, database=role[1], keys_per_claim=16, max_events_per_key=1)
    drain.finish()


def test_a_role_that_is_read_only_by_default_is_refused_in_words(drain, role):
    drain.db.query(f"alter role {role[0]} set default_transaction_read_only = on")
    drain.add(10)
    drain.start_running(database=role[1])
    drain.wait_for_log("read-only")
    drain.db.query(f"alter role {role[0]} reset default_transaction_read_only")
    drain.finish()


def test_pgbouncer_in_transaction_mode_carries_many_relays(drain, pg):
    db = drain.db
    with servers.PgBouncer(pg, settings={"default_pool_size": 5}, user=RELAY_ROLE) as bouncer:
        drain.add(8000)
        drain.start_running(relays=4, database=bouncer.dsn(db.name))
        drain.finish()
        assert not drain.logged("claim.lost")
        assert db.value("select count(*) from pg_locks where locktype = 'advisory' and objsubid = 2 and database ="
                        " (select oid from pg_database where datname = current_database())") == 0
        left = servers.Database(pg, db.name)
        for statement, clean in (("select count(*) from pg_prepared_statements", "0"), ("show search_path", '"$user", public'),
                                 ("show statement_timeout", "0"), ("select count(*) from pg_listening_channels()", "0")):
            assert through(bouncer, left.name, statement) == [clean] * 5, statement


def through(bouncer, dbname, statement):
    """The statement's answer in each of the pool's five sessions."""
    connections = [psycopg2.connect(bouncer.dsn(dbname)) for _ in range(5)]
    answers = []
    for connection in connections:  # an open transaction keeps its session
        cursor = connection.cursor()
        cursor.execute(statement)
        answers.append(str(cursor.fetchone()[0]))
    for connection in connections:
        connection.close()
    return answers
