"""Replays beside live deliveries, workers and pauses, and replays that are stopped or killed: order, exclusion, and no event lost."""

import contextlib
import itertools
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg2
import pytest

from tests.support.history import Event, Fault, Final, Receipt, check
from tests.support.proxy import Proxy
from tests.support.servers import Reply, run_command, wait_until
from tests.support.targets import HttpTarget

CONFIG = """
database: "{dsn}"
sinks: {{ hook: {{ type: http, url: "{url}" }} }}
queues:
  orders:
    table: public.orders
    columns: {{ key: customer, payload: body }}
    sink: hook
    after: archive
    keys_per_claim: 8
    max_events_per_key: 4
    retry: {{ base: 1ms, max: 1ms, attempts: 2 }}
    {more}
"""
TABLE = "create table public.orders (id bigserial primary key, customer {key}, body jsonb); create index on public.orders (customer, id)"
MARK = "pgcourier-replayed"
KEYS, OLD = 20, 400


def insert(db, count):
    db.query("insert into public.orders (customer, body) select n %% %s, '{}' from generate_series(1, %s) n", (KEYS, count))


@pytest.fixture(params=["bigint"])
def orders(request, db):
    db.query(TABLE.format(key=request.param))
    db.let_relay_in("public.orders")
    return db


@pytest.fixture
def start(orders, relay, http):
    """start(...) -> a relay, or with command="replay" what sends again."""

    def run(arguments=(), more="", command="run", until_empty=False, port=None):
        dsn = orders.replay_dsn if command == "replay" else orders.dsn
        dsn = dsn.replace(f"port={orders.server.port}", f"port={port or orders.server.port}")
        return relay(CONFIG.format(dsn=dsn, url=http.url, more=more), command=command, arguments=arguments, until_empty=until_empty)

    return run


@pytest.fixture
def old(orders, start):
    """The archive has OLD events, and the receiver has forgotten them."""
    insert(orders, OLD)
    assert start(until_empty=True).wait() == 0
    return orders


WATCHED = ["--log-level", "debug"]  # it says each claim
ALL = ["--queue", "orders", "--since", "2001-01-01"]


def until_now(db):
    return [*ALL, "--until", str(db.value("select clock_timestamp()"))]


def replayed(http):
    return [request for request in list(http.requests) if MARK in request.headers]


def receipts(http, again):
    """Those of the replay, or the others."""
    target = HttpTarget(http)
    every = zip(target.receipts(), list(http.requests))
    return [receipt for receipt, request in every if (MARK in request.headers) == again]


def tries(one, times=3):
    """Waits for as many more claims: one that is under way may be from before. Only with WATCHED."""
    before = len(one.logged(r"msg=claim\.done"))
    wait_until(lambda: len(one.logged(r"msg=claim\.done")) >= before + times, what="more claims")


def said(one):
    return [line for line in one.log if "table.warning" not in line]


def meetings(http):
    """Pairs of requests of one key that were under way at once. One whose sender was gone is nobody's."""
    whole = [request for request in list(http.requests) if request.answered_at is not None]
    found = []
    by_key = {}
    for request in whole:
        by_key.setdefault(request.headers["event-key"], []).append(request)
    for requests in by_key.values():
        requests.sort(key=lambda request: request.received_at)
        found += [(a, b) for a, b in itertools.pairwise(requests) if b.received_at < a.answered_at]
    return found


def produce(db, until):
    """Live events of the same keys, a few at a time."""
    while not until():
        insert(db, 10)
        time.sleep(0.01)


@pytest.mark.parametrize("more", ["", "ordering: lease"])
def test_replayed_events_keep_their_order_beside_live_ones_though_the_replay_is_killed(old, start, http, more):
    before, chosen = len(http.requests), until_now(old)
    live = [start(more=more), start(more=more)]
    http.respond = lambda request: Reply(delay_s=0.005) if request.number % 4 == 0 else None
    over = threading.Event()
    producer = threading.Thread(target=produce, args=(old, over.is_set))
    producer.start()
    try:
        faults = []
        one = start(chosen, more=more, command="replay")
        for share in (0.25, 0.5, 0.75):
            wait_until(lambda share=share: len(replayed(http)) > OLD * share, what="a part of it")
            faults.append(Fault("SIGKILL", in_flight=2 * 8 * 4, receipts=len(replayed(http))))
            one.kill()
            one = start(["--resume", "1"], more=more, command="replay")
        assert one.wait() == 0, said(one)
    finally:
        over.set()
        producer.join()
    wait_until(lambda: old.value("select count(*) from public.orders") == 0, what="all live events")
    assert [relay.stop() for relay in live] == [0, 0]
    inserted = old.value("select last_value from public.orders_id_seq")
    assert inserted > OLD + 100
    check([Event(n, str(n % KEYS)) for n in range(1, OLD + 1)], receipts(http, True), faults).require()
    events = [Event(*row) for row in old.query("select event_id, key from outbox.archive order by event_id")]
    check(events, receipts(http, False), final=Final(archived=[event.id for event in events])).require()
    assert not meetings(http) and len(http.requests) > before + OLD
    assert old.value("select count(*) from outbox.parked") == 0


def hold_back(http, condition):
    """What it is true of has no answer until release()."""
    http.rule(condition, Reply(action="hang"))


def test_a_replay_waits_for_a_key_that_a_live_event_holds_and_the_other_way_round(old, start, http):
    """And nobody waits for other keys."""
    hold_back(http, lambda request: request.headers["event-key"] == "3" and MARK not in request.headers)
    live = start(WATCHED)
    old.query("insert into public.orders (customer, body) values (3, '{}')")
    wait_until(lambda: len(http.requests) > OLD, what="the live event")
    one = start([*WATCHED, "--queue", "orders", "--id", "3,4"], command="replay")
    wait_until(lambda: replayed(http), what="the other key")
    tries(one)
    assert [request.headers["event-id"] for request in replayed(http)] == ["4"] and one.exit_code is None
    http.release()
    assert one.wait() == 0 and [request.headers["event-id"] for request in replayed(http)] == ["4", "3"]

    hold_back(http, lambda request: MARK in request.headers and request.headers["event-key"] == "5")
    one = start(["--queue", "orders", "--id", "5"], command="replay")
    wait_until(lambda: len(replayed(http)) == 3, what="the replayed event")
    old.query("insert into public.orders (customer, body) values (5, '{}'), (6, '{}')")
    wait_until(lambda: old.value("select count(*) from public.orders") == 1, what="the other key")
    tries(live)
    assert old.query("select customer from public.orders") == [(5,)]
    http.release()
    assert one.wait() == 0
    wait_until(lambda: old.value("select count(*) from public.orders") == 0, what="the live event")
    assert not meetings(http)


@pytest.fixture
def worked(old):
    """Workers take from it, too."""
    old.query("grant select, delete on public.orders to shop_owner; set role shop_owner; select outbox.queue_set('orders', 'public.orders',"
              " key_column => 'customer', payload_column => 'body', after => 'archive')")
    return old


def test_a_key_that_a_worker_has_is_left_alone_until_it_is_done(worked, start, http):
    worked.query("insert into public.orders (customer, body) values (3, '{}')")
    token = worked.value("select token from outbox.take('orders', lease => '1 hour')")
    one = start([*WATCHED, "--queue", "orders", "--id", "3,4,23"], command="replay")
    wait_until(lambda: replayed(http), what="the other key")
    wait_until(lambda: len(one.logged(r"msg=queue\.stats")) >= 2, what="it to find twice that nothing can be sent")
    assert [request.headers["event-id"] for request in replayed(http)] == ["4"] and one.exit_code is None
    assert worked.value("select outbox.done(%s)", (token,))
    assert one.wait() == 0 and [request.headers["event-id"] for request in replayed(http)] == ["4", "3", "23"]


def test_a_worker_does_not_get_a_key_that_is_being_replayed(worked, start, http):
    hold_back(http, lambda request: MARK in request.headers)
    one = start(["--queue", "orders", "--id", "3"], command="replay")
    wait_until(lambda: replayed(http), what="the replayed event")
    worked.query("insert into public.orders (customer, body) values (3, '{}')")
    assert worked.query("select id from outbox.take('orders')") == []
    http.release()
    assert one.wait() == 0
    wait_until(lambda: worked.query("select id from outbox.take('orders')") == [(OLD + 1,)], what="the key to be free")


def test_a_paused_queue_is_not_replayed_into(old, start, http):
    old.query("select outbox.pause('orders')")
    one = start(["--queue", "orders", "--id", "3,4"], command="replay")
    assert one.wait() == 75 and not replayed(http)
    assert said(one)[-1].startswith("pgcourier: replay 1: the queue is paused, and 2 of 2 events are left; to go on: pgcourier replay -c ")
    old.query("select outbox.resume('orders'); select outbox.pause('orders', '3')")
    one = start(["--resume", "1"], command="replay")
    assert one.wait() == 75 and [request.headers["event-id"] for request in replayed(http)] == ["4"]
    assert "1 of 2 events are left, behind paused keys; to go on" in said(one)[-1]
    old.query("select outbox.resume('orders', '3')")
    assert start(["--resume", "1"], command="replay").wait() == 0 and len(replayed(http)) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_and_it_says_how_far_it_is_and_how_to_go_on(old, start, http, number):
    http.respond = lambda request: Reply(delay_s=0.01)
    one = start(ALL, command="replay")
    wait_until(lambda: len(replayed(http)) > 50, what="a part of it")
    one.send(signal.SIGHUP)  # has no meaning, and does no harm
    wait_until(lambda: len(replayed(http)) > 100, what="another part of it")
    assert one.stop(number) == 75
    left = OLD - len(replayed(http))
    assert 0 < left == old.value("select count(*) from outbox.replay_1")
    assert said(one) == [f"replay 1: {OLD} archived events of orders",
                         f"pgcourier: replay 1: stopped, and {left} of {OLD} events are left; to go on: pgcourier replay -c {one.config_path} --resume 1"]
    again = start(["--resume", "1"], command="replay")
    assert again.wait() == 0 and said(again) == [f"replay 1: all {OLD} events sent"]
    check([Event(n, str(n % KEYS)) for n in range(1, OLD + 1)], receipts(http, True)).require()  # none of them twice


WAITS = "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'pgcourier/replay' and wait_event_type = 'Lock'"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("arguments", [[*ALL], ["--resume", "1"], ["--cancel", "1"]], ids=["made", "resumed", "cancelled"])
def test_a_signal_stops_it_while_it_waits_for_the_database(old, start, http, arguments, number):
    http.respond = lambda request: Reply(delay_s=0.01)
    one = start(ALL, command="replay")
    wait_until(lambda: replayed(http), what="a replay to go on with")
    assert one.stop() == 75
    connection = old.connect(autocommit=False)
    with connection.cursor() as cursor:
        cursor.execute("lock table outbox.replay")
        one = start(arguments, command="replay")
        wait_until(lambda: old.value(WAITS) == 1, what="it to wait")
        one.send(signal.SIGHUP)
        time.sleep(0.2)
        assert one.exit_code is None and old.value(WAITS) == 1, "it is a SIGHUP that stops nothing"
        assert one.stop(number) == 75 and said(one)[-1] == "pgcourier: replay: stopped"
        wait_until(lambda: old.value(WAITS) == 0, what="the server to be rid of it")
    connection.close()
    assert old.value("select count(*) from outbox.replay") == 1
    assert start(["--resume", "1"], command="replay").wait() == 0


def test_a_signal_stops_it_though_the_network_is_cut(old, start, http):
    """And it says how to go on, though nobody tells it how much is left."""
    hold_back(http, lambda request: MARK in request.headers)
    with Proxy(old.server.port) as proxy:
        one = start([*ALL, "--log-level", "info"], command="replay", port=proxy.port)
        wait_until(lambda: replayed(http), what="the replayed event")
        proxy.blackhole()
        one.send(signal.SIGINT)
        wait_until(lambda: one.logged("relay.stop"), what="it to stop")
        one.send(signal.SIGINT)
        assert one.wait(20) == 75
        assert one.log[-1] == ("pgcourier: replay 1: replay: the database gave no answer within 5 s; to go on: "
                               f"pgcourier replay -c {one.config_path} --resume 1")


def test_one_process_at_a_time_sends_a_replay(old, start, http):
    hold_back(http, lambda request: MARK in request.headers)
    one = start(["--queue", "orders", "--id", "3"], command="replay")
    wait_until(lambda: replayed(http), what="the replayed event")
    for option in ("--resume", "--cancel"):
        other = start([option, "1"], command="replay")
        assert other.wait() == 75 and "replay 1 is under way; Wait for its end, or stop that pgcourier replay" in said(other)[-1]
    # While it waits for an answer it holds nothing back: no snapshot, no transaction id.
    wait_until(lambda: old.query("select backend_xid, backend_xmin, state from pg_stat_activity where datname = current_database()"
                                 " and application_name = 'pgcourier/replay'") == [(None, None, "idle in transaction")])
    http.release()
    assert one.wait() == 0


def waits_for_lock(db):
    return db.query("select a.pid from pg_locks l join pg_stat_activity a using (pid) where not l.granted and a.application_name = 'pgcourier/replay'"
                    " and a.datname = current_database()")


@pytest.mark.parametrize("option", ["--resume", "--cancel"])
def test_who_waits_for_the_end_of_a_replay_finds_it_ended(old, start, http, option):
    """Not what was sent and is not yet ended, nor that its table is gone."""
    hold_back(http, lambda request: MARK in request.headers)
    one = start(["--queue", "orders", "--id", "3"], command="replay")
    wait_until(lambda: replayed(http), what="the replayed event")
    other = start([option, "1"], command="replay")
    wait_until(lambda: waits_for_lock(old), what="the second process to wait for the first")
    http.release()
    assert one.wait() == 0 and said(one)[-1] == "replay 1: all 1 event sent"
    assert other.wait() == 64
    assert said(other) == ["pgcourier: replay: there is none with the number 1 that is not whole; See select * from outbox.replay where ended_at is null."]
    assert old.query("select unsent, ended_at is not null from outbox.replay") == [(0, True)] and len(replayed(http)) == 1


def test_who_waits_for_a_replays_lock_looks_again_when_it_has_it(old):
    """What it has read of the replay before may hold no longer."""
    old.query("select * from outbox.replay('orders', ids => '{3}', map => '{\"table\": \"public.orders\", \"id\": \"id\"}')")
    with contextlib.closing(old.connect(autocommit=False)) as first, ThreadPoolExecutor() as pool:
        first.cursor().execute("select outbox.replay_end(1)")
        second = pool.submit(old.query, "set application_name = 'pgcourier/replay'; select outbox.replay_lock(1)")
        wait_until(lambda: waits_for_lock(old))
        first.commit()
        with pytest.raises(psycopg2.errors.UndefinedObject, match="there is none with the number 1 that is not whole"):
            second.result()


def test_a_replay_that_has_lost_the_database_says_how_to_go_on(old, start, http):
    hold_back(http, lambda request: MARK in request.headers)
    one = start(["--queue", "orders", "--id", "3"], command="replay")
    wait_until(lambda: replayed(http), what="the replayed event")
    old.query("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'pgcourier/replay'")
    http.release()
    assert one.wait() == 69 and f"to go on: pgcourier replay -c {one.config_path} --resume 1" in said(one)[-1]
    again = start(["--resume", "1"], command="replay")
    assert again.wait() == 0 and len(replayed(http)) == 1 and said(again) == ["replay 1: all 1 event sent"]


def test_a_rate_is_kept(old, start, http):
    """A claim has a twentieth of a second's events, and the next one waits until these have had their time."""
    one = start([*ALL, "--rate", "200/s"], command="replay")
    assert one.wait() == 0, said(one)
    times = [request.received_at for request in replayed(http)]
    assert len(times) == OLD and max(times) - min(times) >= (OLD - 10) / 200 - 0.1
    assert old.value("select rate from outbox.replay") == 200
    for first, last in zip(times, times[100:]):
        assert last - first >= 90 / 200 - 0.1  # nothing is saved up


def test_ids_that_began_anew_are_told_apart_by_time(old, start, http):
    old.query("insert into outbox.archive (queue, event_id, key, archived_at, original) values ('orders', 3, '3', '2001-01-01',"
              " '{\"id\": 3, \"customer\": 3, \"body\": {\"old\": 1}}')")
    one = start(["--queue", "orders", "--id", "3"], command="replay")
    assert one.wait() == 64 and "replay: an id is there more than once; Ids that began anew are told apart by time" in said(one)[-1]
    assert old.value("select count(*) from outbox.replay") == 0
    assert start(["--queue", "orders", "--id", "3", "--until", "2001-01-02"], command="replay").wait() == 0
    assert replayed(http)[-1].json() == {"old": 1}
