"""A destination refuses everything: a backlog waits for it, or an event that chose it is given up."""

import re
import time

import pytest

from tests.support.servers import Reply, wait_until
from tests.support.shop import Shop

BACKLOG = 10000
WINDOW_S = 2
VAIN_PER_S = 5000  # events claimed and given back, at most; and so many at once:
BURST = 2000


def claimed(one):
    """Keys claimed so far."""
    return sum(int(count) for line in one.logged("claim.done") for count in re.findall(r" keys=(\d+)", line))


@pytest.mark.parametrize("keyed, ordering", [(True, "per_key"), (False, "per_key"), pytest.param(True, "lease", marks=pytest.mark.deep),
                                             pytest.param(False, "lease", marks=pytest.mark.deep)])
def test_its_backlog_does_not_keep_the_database_busy_nor_others_waiting(relay, db, http, keyed, ordering):
    http.respond = lambda request: Reply(401 if request.target == "/down" else 200)
    key = "n" if keyed else "null"
    insert = f"insert into public.events (order_id, status, payload) select {key}, %s, 'x' from generate_series(%s, %s) as n"
    shop = Shop(db)
    db.query(insert, ("down", 1, BACKLOG))
    sink = f'type: http, url: "{http.url}", max_in_flight: 64'
    one = relay(shop.config(sink, destination='"{type}"', ordering=ordering), arguments=["--log-level", "debug"])
    wait_until(lambda: claimed(one) >= BACKLOG, 60, "the backlog to be looked at")

    before, started = claimed(one), time.monotonic()
    time.sleep(WINDOW_S)
    in_vain, seconds = claimed(one) - before, time.monotonic() - started
    print(f"{in_vain / seconds:.0f} events a second were claimed in vain")
    assert in_vain <= VAIN_PER_S * seconds + BURST

    db.query(insert, ("up", BACKLOG + 1, BACKLOG + 50))
    wait_until(lambda: sum(request.target == "/up" for request in http.requests) == 50, 20, "the others to arrive")
    assert shop.attempts() == 0
    http.respond = None
    wait_until(lambda: shop.left() == 0, 60, "the backlog to be delivered")
    assert shop.attempts() == 0
    assert one.stop() == 0


@pytest.mark.parametrize("status", [404, 405, 410])
@pytest.mark.parametrize("destination", [{}, {"destination": "orders"}])
def test_a_wrong_path_of_the_configuration_is_no_events_fault(relay, db, http, status, destination):
    http.respond = lambda request: Reply(status)
    shop = Shop(db)
    shop.add(6, 2)
    one = relay(shop.config(f'type: http, url: "{http.url}"', **destination))
    refusals = wait_until(lambda: one.logged("sink.down"), 20, "the path to be found wrong")
    assert f"HTTP {status}" in refusals[0] and "check `url` and `destination`" in refusals[0]
    assert shop.left() == 6 and shop.attempts() == 0 and db.value("select count(*) from outbox.dead") == 0
    http.respond = None
    wait_until(lambda: shop.left() == 0, 60, "the events to be delivered")
    assert one.stop() == 0


def test_a_path_that_an_event_chose_is_its_own_fault(relay, db, http):
    http.respond = lambda request: Reply(404 if request.target == "/wrong" else 200)
    shop = Shop(db)
    db.query("insert into public.events (order_id, status, payload) values (1, 'wrong', 'x'), (2, 'right', 'x')")
    one = relay(shop.config(f'type: http, url: "{http.url}"', destination='"{type}"'))
    wait_until(lambda: shop.left() == 0, 20, "one to be delivered and one given up")
    assert db.query("select event_id, key from outbox.dead") == [(1, "1")]
    assert "check what `destination` makes of the event" in db.value("select reason from outbox.dead")
    assert one.stop() == 0


@pytest.mark.parametrize("status, expected", [(422, "dead"), (500, "attempts")])
def test_a_path_that_is_cut_in_a_message_stays_text(relay, db, http, status, expected):
    http.respond = lambda request: Reply(status)
    db.query("insert into outbox.events (aggregateid, payload) values (%s, '1')", ("a" + 100 * "\u00fc",))
    one = relay(f"""
database: "{db.dsn}"
sinks: {{ hook: {{ type: http, url: "{http.url}" }} }}
queues: {{ orders: {{ sink: hook, destination: "/c/{{key}}", retry: {{ base: 1h, max: 1h }} }} }}""")
    ask = {"dead": "select reason from outbox.dead", "attempts": "select last_error from outbox.parked where attempts = 1"}[expected]
    ((text,),) = wait_until(lambda: db.query(ask), 20, "what became of it to be noted")
    assert f": HTTP {status}, " in text and "\u00fc" in text
    assert one.stop() == 0 and not one.logged("settle.failed|cannot be taken out")
