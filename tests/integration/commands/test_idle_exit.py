"""pgcourier run --exit-when-idle: ends when there was nothing to do for so long, and only then."""

import time

import pytest

from tests.support.servers import Reply, run_command, wait_until

CONFIG = """
database: "{dsn}"
sinks: {{ web: {{ type: http, url: "{url}" }} }}
queues: {{ orders: {{ table: public.events, columns: {{ key: order_id }}, sink: web, retry: {{ base: 10ms, max: 20ms }} }} }}
"""
IDLE_S = 1.5


@pytest.fixture
def start(db, http, relay):
    def run():
        one = relay(CONFIG.format(dsn=db.dsn, url=http.url), arguments=["--exit-when-idle", f"{IDLE_S * 1000:.0f}ms"])
        wait_until(lambda: one.logged("relay.start"))
        return one

    db.psql("create table public.events (id bigserial primary key, order_id bigint); create index on public.events (order_id, id)")
    db.let_relay_in("public.events")
    return run


def test_it_ends_when_there_was_nothing_to_do_for_so_long(db, http, start):
    db.query("insert into public.events (order_id) select n from generate_series(1, 20) n")
    one = start()
    wait_until(lambda: db.value("select count(*) from public.events") == 0, what="the first events")
    for n in range(4):
        time.sleep(IDLE_S / 3)
        db.query("insert into public.events (order_id) values (%s)", (n,))
    assert one.exit_code is None, "each event starts the time anew"
    assert one.wait(20) == 0
    assert len(http.requests) == 24 and db.value("select count(*) from public.events") == 0
    assert time.monotonic() - http.requests[-1].received_at >= IDLE_S
    assert one.logged("msg=relay.idle idle_ms=") and one.logged("relay.end drained=yes")


def test_a_delivery_that_takes_long_is_something_to_do(db, http, start):
    http.respond = lambda request: Reply(200, delay_s=3 * IDLE_S)
    db.query("insert into public.events (order_id) values (1)")
    one = start()
    assert one.wait(30) == 0
    assert db.value("select count(*) from public.events") == 0


def test_it_stays_while_its_destination_is_away(db, http, start):
    http.stop()
    db.query("insert into public.events (order_id) select n from generate_series(1, 3) n")
    one = start()
    wait_until(lambda: one.logged("sink.down"), what="the circuit to open")
    time.sleep(2 * IDLE_S)
    assert one.exit_code is None
    http.start()
    assert one.wait(60) == 0
    assert db.value("select count(*) from public.events") == 0


@pytest.mark.parametrize("text", ["soon", "10", "1ms"])
def test_a_time_that_is_none_is_said(text):
    done = run_command("run", "-c", "x", "--exit-when-idle", text)
    assert done.returncode == 64 and "--exit-when-idle: " in done.stderr
