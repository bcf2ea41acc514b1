"""pgcourier pause, resume and drain."""

import json
import re
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.history import Event, Final, check
from tests.support.servers import HANG, Reply, run_command, wait_until
from tests.support.targets import http_receipts

CONFIG = """
database: "{dsn}"
sinks: {{ web: {{ type: http, url: "{url}" }} }}
queues:
  orders: {{ table: public.events, columns: {{ key: order_id }}, sink: web }}
"""


@pytest.fixture
def shop(db, http, tmp_path):
    """shop(words...) runs a command on the queue orders."""
    db.psql("create table public.events (id bigserial primary key, order_id bigint); create index on public.events (order_id, id)")
    db.let_relay_in("public.events")
    path = tmp_path / "pgcourier.yaml"
    path.write_text(CONFIG.format(dsn=db.dsn, url=http.url))

    def run(*words, code=0):
        done = run_command(*words, "-c", str(path))
        assert done.returncode == code, done.stderr + done.stdout
        return done.stdout if code == 0 else done.stderr

    run.path = path
    return run


def test_a_queue_is_paused_and_goes_on(db, shop):
    assert shop("pause", "orders", "--reason", "the receiver moves") == "orders is paused\n"
    assert shop("pause", "orders") == "orders was paused already\n"
    _, line = shop("status").splitlines()
    assert re.search(r" paused since 20\S+Z by \S+: the receiver moves$", line)
    (queue,) = json.loads(shop("status", "--json"))["queues"]
    assert queue["paused"]["reason"] == "the receiver moves" and queue["paused_keys"] == 0
    assert shop("resume", "orders") == "orders goes on\n"
    assert shop("resume", "orders") == "orders was not paused\n"
    assert "paused since" not in shop("status")
    assert json.loads(shop("status", "--json"))["queues"][0]["paused"] is None


def test_a_key_is_paused_by_the_name_that_its_events_have(db, shop):
    assert shop("pause", "orders", "--key", "7") == "orders, key 7 is paused\n"
    assert db.query("select queue, key, next_at = 'infinity' from outbox.parked") == [("orders", "7", True)]
    assert json.loads(shop("status", "--json"))["queues"][0]["paused_keys"] == 1
    assert shop("resume", "orders", "--key", "7") == "orders, key 7 goes on\n"
    text = shop("pause", "orders", "--key", "007", code=64)
    assert text == ('pgcourier: queue orders: "007" is no key of public.events: write it as the column "order_id" shows it\n')
    assert db.value("select count(*) from outbox.paused") == 0


@pytest.mark.parametrize("words, code, text", [
    (["pause"], 64, "say which queue"),
    (["pause", "a", "b"], 64, "one queue at a time"),
    (["pause", "order"], 64, 'has no queue "order"; did you mean "orders"? (its queues: orders'),
    (["resume", "nothing"], 64, 'has no queue "nothing" (its queues: orders'),
    (["drain", "nothing"], 64, 'has no queue "nothing" (its queues: orders'),
    (["drain", "orders", "--timeout", "soon"], 64, "--timeout: "),
    (["pause", "orders", "--reason", "x" * 1001], 64, "the reason has 1001 characters"),
])
def test_what_cannot_be_paused_is_said(shop, words, code, text):
    assert text in shop(*words, code=code)


def test_a_pause_wants_the_configuration():
    done = run_command("pause", "orders")
    assert done.returncode == 64 and "give the configuration with -c FILE" in done.stderr


def test_a_key_that_is_no_text_is_refused_by_the_server(shop):
    assert "invalid byte sequence" in shop("pause", "orders", "--key", b"\xff", code=64)


def test_a_drain_whose_connection_breaks_says_so(db, relay, http, shop):
    http.rule(lambda request: True, Reply(action=HANG))
    one = relay(shop.path.read_text())
    db.query("insert into public.events (order_id) values (1)")
    wait_until(lambda: len(http.requests) == 1, what="a delivery is under way")
    with ThreadPoolExecutor() as pool:
        text = pool.submit(shop, "drain", "orders", code=69)
        ended = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pgcourier/drain' and query ~ 'pg_locks|outbox.parked'"
        wait_until(lambda: db.query(ended), what="it looks at the locks, and its backend is terminated")
        assert "terminating connection" in text.result()
    http.release()
    one.stop()


def test_a_queue_without_keys_has_none_to_pause(db, shop):
    shop.path.write_text(shop.path.read_text().replace("columns: { key: order_id }, ", ""))
    assert "has no key column" in shop("pause", "orders", "--key", "7", code=64)


def test_drain_waits_for_what_is_on_its_way(db, relay, http, shop):
    http.rule(lambda request: request.json()["order_id"] == 1, Reply(action=HANG), times=1)
    one = relay(shop.path.read_text())
    db.query("insert into public.events (order_id) select n % 2 from generate_series(1, 10) n")
    wait_until(lambda: len(http.requests) == 6, what="all of key 0, and the first of key 1")
    text = shop("drain", "orders", "--timeout", "1s", code=75)
    assert re.search("after 1s a relay or worker still holds [12] keys? of orders, or of another queue over its table; it stays paused\n$", text)
    http.release()
    assert shop("drain", "orders", "--key", "1") == "orders, key 1 is paused and nothing of it is on its way\n"
    assert shop("drain", "orders") == "orders is paused and nothing of it is on its way\n"
    assert [row[0] for row in db.query("select order_id from public.events")] == [1] * 4, "the one under way was settled"
    assert shop("resume", "orders") and shop("resume", "orders", "--key", "1")
    wait_until(lambda: db.value("select count(*) from public.events") == 0)
    assert one.stop() == 0 and len(http.requests) == 10
    check([Event(n, str(n % 2)) for n in range(1, 11)], http_receipts(http), final=Final()).require()


def stands_still(db, one):
    """A claim that is on its way when it is stopped has events: they are on their way, too."""
    states = "select state from pg_stat_activity where application_name = 'pgcourier' and datname = current_database()"
    one.send(signal.SIGSTOP)
    wait_until(lambda: ("active",) not in db.query(states), what="its statements to end")
    still = all(state == "idle" for state, in db.query(states))
    if not still:
        one.send(signal.SIGCONT)
    return still


def test_a_relay_that_stood_still_sends_nothing_after_a_drain(db, relay, http, shop):
    """It finds the pause in the snapshot that it reads its claims in, however late it looks for it otherwise."""
    one = relay(shop.path.read_text().replace("sink: web }", "sink: web, latency: 1ms, poll: { max: 2ms } }"))
    for turn in range(1, 11):
        wait_until(lambda: stands_still(db, one), what="it to stand still outside of a transaction")
        db.query("insert into public.events (order_id) select n from generate_series(1, 10) n")
        assert shop("drain", "orders") == "orders is paused and nothing of it is on its way\n"
        one.send(signal.SIGCONT)
        wait_until(lambda: len(one.logged("queue.paused")) == turn)
        assert len(http.requests) == 10 * (turn - 1), "what is sent after the drain"
        shop("resume", "orders")
        wait_until(lambda: db.value("select count(*) from public.events") == 0)
        wait_until(lambda: len(one.logged("queue.resumed")) == turn)
    assert one.stop() == 0 and len(http.requests) == 100
