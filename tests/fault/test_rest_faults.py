"""What happens while a queue rests: whoever may have missed a notification looks at once.

Looks at the table are 20 s apart here: what arrives within WAKE_S was announced, or the loss of a connection was noticed."""

import os
import signal
import time

import pytest

from tests.conftest import migrate
from tests.support import servers
from tests.support.postgres import RELAY_ROLE
from tests.support.proxy import Proxy
from tests.support.servers import wait_until
from tests.support.shop import Shop
from tests.support.targets import FileTarget

WAKE_S = 5
DEEP = os.environ.get("PGCOURIER_DEEP") == "1"
DURABLE = {"synchronous_commit": "on"}
SELDOM = {"poll": "{ max: 20s }"}
DEBUG = ("--log-level=debug",)
WAKING = "select pid from pg_locks where locktype = 'advisory' and classid::bigint = 4294967296 - 1818282541"


def a_shop(database):
    shop = Shop(database)
    database.query("select outbox.install_wake('public.events')")
    return shop


@pytest.fixture
def shop(db):
    return a_shop(db)


@pytest.fixture
def durable_pg():
    with servers.Postgres(settings=DURABLE) as server:
        yield server


@pytest.fixture
def out(tmp_path):
    return FileTarget(tmp_path / "out.jsonl")


def start(relay, shop, out, **options):
    return relay(shop.config(out.sink(), **{**SELDOM, **options}), arguments=DEBUG)


def rests(one, times=1):
    wait_until(lambda: len(one.logged("msg=queue.rest ")) >= times, 20, f"the queue to rest {times} times")


def is_delivered(shop, within_s=WAKE_S):
    wait_until(lambda: shop.left() == 0, within_s, "the events to be delivered")


def test_a_waking_connection_that_is_lost_wakes_the_queue(relay, shop, out):
    one = start(relay, shop, out)
    rests(one)
    for times in (1, 2):
        shop.db.psql(f"select pg_terminate_backend(pid) from ({WAKING}) as w; insert into public.events (order_id, status) values (1, 'step')")
        is_delivered(shop)
        wait_until(lambda: len(one.logged("msg=queue.wake .*connection lost")) == times)
        rests(one, times + 1)
    shop.db.query("insert into public.events (order_id, status) values (1, 'step')")
    is_delivered(shop)


def test_any_connection_that_is_lost_wakes_the_queue(relay, shop, out):
    one = start(relay, shop, out)
    rests(one)
    others = f"select pid from pg_stat_activity where datname = current_database() and application_name = 'pgcourier' and pid not in ({WAKING})"
    for times, (pid,) in enumerate(shop.db.query(others), 2):
        shop.db.query("select pg_terminate_backend(%s)", (pid,))
        rests(one, times)
    shop.add(1, 1)
    is_delivered(shop)


def test_a_relay_that_is_killed_at_rest_leaves_nothing_to_the_others_to_wait_for(relay, shop, out):
    victim, other = (start(relay, shop, out) for _ in range(2))
    rests(victim)
    rests(other)
    victim.kill()
    shop.add(1, 1)
    is_delivered(shop)
    assert other.stop() == 0
    shop.add(1, 1)
    third = start(relay, shop, out)
    is_delivered(shop, 20)
    assert third.stop() == 0
    shop.check(out.receipts())


def test_a_relay_that_stands_still_at_rest_delays_nobody_else(relay, shop, out):
    victim, other = (start(relay, shop, out) for _ in range(2))
    rests(victim)
    rests(other)
    victim.send(signal.SIGSTOP)
    for times in range(2, 4):
        shop.add(1, 1)
        is_delivered(shop)
        rests(other, times)
    victim.send(signal.SIGCONT)
    shop.add(1, 1)
    is_delivered(shop)


@pytest.mark.parametrize("how", ["fast", "immediate"])
def test_a_server_that_restarts_finds_the_relay_awake(relay, durable_pg, out, how):
    database = durable_pg.create_database()
    migrate(database)
    shop = a_shop(database)
    one = start(relay, shop, out)
    rests(one)
    durable_pg.restart(how)
    wait_until(lambda: one.logged("msg=queue.wake .*connection lost|msg=queue.wake .*reason=work"))
    rests(one, 2)
    shop.add(1, 1)
    is_delivered(shop)


def test_a_failover_finds_the_relay_awake(relay, tmp_path, out):
    with servers.Postgres(settings=DURABLE) as primary, servers.Standby(primary, DURABLE) as standby:
        database = primary.create_database()
        migrate(database)
        shop = a_shop(database)
        both = f"host=127.0.0.1,127.0.0.1 port={primary.port},{standby.port} dbname={database.name} user={RELAY_ROLE}" \
            " target_session_attrs=read-write"
        wait_until(lambda: standby.query("select to_regclass('public.events') is not null", dbname=database.name)[0][0], 30)
        one = start(relay, shop, out, database=both)
        rests(one)
        primary.stop("immediate")
        standby.query("select pg_promote()")
        shop.db = servers.Database(standby, database.name)
        wait_until(lambda: not standby.query("select pg_is_in_recovery()")[0][0], 30)
        shop.db.query("insert into public.events (order_id, status) values (1, 'step')")
        is_delivered(shop, 20)
        rests(one, 2)
        shop.db.query("insert into public.events (order_id, status) values (1, 'step')")
        is_delivered(shop)


def test_a_server_that_restarts_behind_a_pooler_finds_the_relay_awake(relay, durable_pg, out):
    """The direct connection is lost with the server; the pooler keeps its own."""
    database = durable_pg.create_database()
    migrate(database)
    shop = a_shop(database)
    with servers.PgBouncer(durable_pg) as pooler:
        one = start(relay, shop, out, database=pooler.dsn(database.name), top=f'listen_database: "{database.dsn}"')
        rests(one)
        durable_pg.restart("immediate")
        rests(one, 2)
        shop.add(1, 1)
        is_delivered(shop)


def test_a_server_that_cannot_be_reached_any_more_is_noticed(relay, shop, out, pg):
    """By the keepalives of the operating system, within a minute; here the proxy ends the connections."""
    with Proxy(pg.port) as proxy:
        one = start(relay, shop, out, database=shop.db.dsn.replace(f"port={pg.port}", f"port={proxy.port}"))
        rests(one)
        proxy.cut()
        shop.db.query("insert into public.events (order_id, status) values (1, 'step')")
        is_delivered(shop)
        rests(one, 2)


def test_a_server_that_says_nothing_more_is_noticed(shop, out, pg):
    """Within a minute and the time of a statement; here of a second each. A proxy holds the connections, and has lost the server."""
    with Proxy(pg.port) as proxy:
        one = servers.Relay(shop.config(out.sink(), **SELDOM, top="statement_timeout: 1s", database=shop.db.dsn.replace(f"port={pg.port}", f"port={proxy.port}")),
                            arguments=DEBUG, env={"PGCOURIER_FAULT": "rest.check:1:errors"})
        try:
            one.start()
            rests(one)
            proxy.fall_silent()
            shop.db.query("insert into public.events (order_id, status) values (1, 'step')")
            wait_until(lambda: one.logged("database.down .*waking.*has not answered in time"), 30, "the relay to notice")
            is_delivered(shop, 60)
        finally:
            one.close()


def test_queues_whose_connections_are_all_lost_rest_again(relay, shop, out):
    """A queue needs one claim connection of two; the other one may never be used again."""
    tables = [f"public.more{n}" for n in range(3)]
    for table in tables:
        shop.db.psql(f"create table {table} (id bigserial primary key, k bigint); create index on {table} (k, id);"
                     f"select outbox.install_wake('{table}')")
        shop.db.let_relay_in(table)
    queues = "".join(f"  q{n}: {{ table: {table}, columns: {{ key: k }}, sink: out, destination: d, poll: {{ max: 20s }} }}\n"
                     for n, table in enumerate(tables))
    one = relay(f'database: "{shop.db.dsn}"\nsinks:\n  out: {{ {out.sink()} }}\nqueues:\n{queues}', arguments=DEBUG)
    rests(one, 3)
    for times in range(1, 5):
        shop.db.psql(f"select pg_terminate_backend(pid) from pg_stat_activity where usename = '{RELAY_ROLE}' and pid <> pg_backend_pid()")
        rests(one, 3 * (times + 1))


def test_many_producers_and_relays_that_fall_asleep_lose_nothing(relay, shop, out):
    """Events come in bursts, with silences of about as long as a relay needs to fall asleep."""
    several = [start(relay, shop, out) for _ in range(2)]
    connections = [shop.db.connect() for _ in range(3)]
    until = time.monotonic() + (120 if DEEP else 15)
    burst = 0
    while time.monotonic() < until:
        for connection in connections[:1 + burst % 3]:
            shop.insert([burst % 7 + 1], connection)
        burst += 1
        is_delivered(shop)
        time.sleep(1 + burst * 0.0737 % 0.4)
    for connection in connections:
        connection.close()
    assert sum(len(one.logged("msg=queue.rest ")) for one in several) >= 4
    for one in several:
        assert one.stop() == 0
    shop.check(out.receipts())
