"""What producers and what is in the table do to the order: ids that are drawn early and committed late, sequences with a
cache, tables that forget, backlogs, old snapshots, and newer events that never end."""

import threading
import time

import pytest

from tests.conftest import migrate
from tests.support.fault_run import FaultRun
from tests.support.history import Event, check
from tests.support.journal import read_lines
from tests.support.servers import Reply, wait_until
from tests.support.shop import HOT_ORDER, Shop
from tests.support.targets import FileTarget, HttpTarget

PUBLISH = "select outbox.publish(%s, 't', '{}')"


@pytest.fixture
def run(relay, db, tmp_path):
    return FaultRun(relay, Shop(db), FileTarget(tmp_path / "events.jsonl", sync=False))


# ---- ids ----

def publish(db, journal):
    """Each transaction waits a little before it commits."""
    with db.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for number in range(30):
            key = str(number % 3)
            cursor.execute(PUBLISH, (key,))
            event_id = cursor.fetchone()[0]
            time.sleep(0.002)
            connection.commit()
            journal.append(Event(event_id, key))
    connection.close()


def test_what_many_publish_for_the_same_keys_is_delivered_in_the_order_of_its_ids(relay, db, tmp_path):
    target, journal = FileTarget(tmp_path / "events.jsonl", sync=False), []
    one = relay(f'database: "{db.dsn}"\nsinks: {{ out: {{ {target.sink()} }} }}\n'
                "queues: { orders: { sink: out, destination: orders, latency: 1ms, poll: { max: 5ms } } }\n")
    producers = [threading.Thread(target=publish, args=(db, journal)) for _ in range(8)]
    for producer in producers:
        producer.start()
    for producer in producers:
        producer.join()
    wait_until(lambda: db.value("select count(*) from outbox.events") == 0, 60, "all to be delivered")
    assert one.stop() == 0
    assert len(journal) == 240
    check(journal, [(receipt["id"], receipt["key"]) for receipt in read_lines(target.path)]).require()


@pytest.mark.parametrize("cache, breaches", [(32, {"order"}), (1, set())])
def test_sequence_with_a_cache_breaks_the_order_and_one_without_does_not(run, cache, breaches):
    """Two sessions take turns on one order; what a session has drawn before it uses later. The relay would not start with
    such a sequence."""
    run.start_running()
    run.db.query(f"alter sequence public.events_id_seq cache {cache}")
    first, second = run.db.connect(), run.db.connect()
    for connection in (first, second, first):
        run.shop.insert([7], connection)
        run.wait_until_empty()
    first.close()
    second.close()
    run.stop()
    assert check(run.shop.journal, run.target.receipts(), final=run.shop.final()).kinds() == breaches


def test_id_that_is_drawn_first_and_committed_last_is_delivered(run):
    """Its transaction has no number of its own while it waits, so no snapshot tells of it."""
    run.start()
    with run.db.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("select nextval('public.events_id_seq')")
        early = cursor.fetchone()[0]
        for _ in range(5):
            run.shop.insert(range(2, 102))
            run.wait_until_empty()
        cursor.execute("insert into public.events (id, order_id, status) values (%s, 1, 'late')", (early,))
        connection.commit()
    connection.close()
    run.shop.journal.append(Event(early, "1"))
    run.shop.insert([1])
    assert run.finish() == 0


# ---- tables ----

@pytest.mark.parametrize("persistence, breaches", [("unlogged", {"lost"}), ("logged", set())])
def test_unlogged_table_loses_what_a_logged_one_keeps_when_the_server_crashes(relay, own_pg, tmp_path, persistence, breaches):
    """The relay would not start with an unlogged one."""
    db = own_pg.create_database()
    migrate(db)
    run = FaultRun(relay, Shop(db), FileTarget(tmp_path / "events.jsonl", sync=False))
    db.query(f"alter table public.events set {persistence}; alter database {db.name} set synchronous_commit = on")
    run.add(100)
    own_pg.restart("immediate")
    db.query("alter table public.events set logged")
    run.start()
    run.wait_until_empty()
    run.stop()
    assert check(run.shop.journal, run.target.receipts(), final=run.shop.final()).kinds() == breaches


def test_rows_that_an_old_snapshot_keeps_are_not_delivered_again(run):
    with run.db.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("set transaction isolation level repeatable read")
        cursor.execute("select count(*) from public.events")
        run.start()
        for _ in range(4):
            run.add(500)
            run.wait_until_empty()
        notices = run.db.vacuum("public.events")
    connection.close()
    assert "2000 are dead but not yet removable" in notices, notices
    assert run.finish() == 0


# ---- much of it ----

def test_one_hot_key_among_many_is_drained_in_order(run):
    """Every second event is of one order, and each of the others has one of its own."""
    run.shop.insert(key for order in range(2, 2502) for key in (HOT_ORDER, order))
    for _ in range(2):
        run.start(keys_per_claim=200)
    assert run.finish() == 0


def test_events_are_delivered_while_newer_ones_of_other_keys_never_end(relay, db, http):
    """More comes than the receiver takes, until the last of the old ones is delivered."""
    run = FaultRun(relay, Shop(db), HttpTarget(http))
    http.respond = lambda request: Reply(delay_s=0.005)
    old = {event.id for event in run.shop.insert(range(1, 101))}
    run.start(sink={"max_in_flight": 4})

    def old_ones_are_delivered():
        run.shop.insert(range(101, 151))
        return old <= set(run.target.received_at())

    wait_until(old_ones_are_delivered, 60, "the old events to be delivered")
    assert run.shop.left() > 50
    http.respond = None
    assert run.finish() == 0
