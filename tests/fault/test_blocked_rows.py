"""Rows that somebody else holds, or that take long to delete, once their events are delivered: their neighbours are settled, the
queue goes on, and nothing is delivered twice, whichever relay has the keys."""

import time
from collections import Counter
from contextlib import contextmanager

import pytest

from tests.support.fault_run import FaultRun
from tests.support.postgres import RELAY_ROLE
from tests.support.servers import PgBouncer, wait_until
from tests.support.shop import Shop
from tests.support.targets import FileTarget

EVENTS, KEYS = 400, 40
BAD = 165  # of key 5; 205, 245, ... come after it
LONGER_THAN_LOCK_TIMEOUT_S = 8
SLOW = "create function public.slow() returns trigger language plpgsql as $$ begin {body} return old; end $$;" \
       "create trigger slow before delete on public.events for each row execute function public.slow()"

WAYS = {
    "per_key": {},
    "few_keys": {"keys_per_claim": 4, "connections": 1},
    "unordered": {"ordering": "unordered", "locks": "advisory"},
    "lease": {"ordering": "lease"},
}


@pytest.fixture
def run(relay, db, tmp_path):
    return FaultRun(relay, Shop(db), FileTarget(tmp_path / "events.jsonl"))


@contextmanager
def held(run, sql, args=None):
    connection = run.db.connect(autocommit=False)
    connection.cursor().execute(sql, args)
    try:
        yield
    finally:
        connection.rollback()
        connection.close()


def came_once(run):
    return Counter(receipt.id for receipt in run.target.receipts()) == Counter(event.id for event in run.shop.committed)


def only_key_5_is_left(db):
    return db.query("select min(order_id), max(order_id) from public.events") == [(5, 5)]


def hold_one_row(run, **options):
    run.add(EVENTS, KEYS)
    with held(run, "select from public.events where id = %s for update", (BAD,)):
        began = time.monotonic()
        run.start_running(relays=2, **options)
        wait_until(lambda: only_key_5_is_left(run.db) and run.shop.left() <= 6, 60, "all others to be settled")
        while time.monotonic() - began < 2 * LONGER_THAN_LOCK_TIMEOUT_S:
            run.add(KEYS, KEYS)
            wait_until(lambda: only_key_5_is_left(run.db), 30, "what comes meanwhile to be settled")
            time.sleep(0.5)
        counts = Counter(receipt.id for receipt in run.target.receipts())
        assert set(counts.values()) == {1} and BAD in counts
        assert run.logged(f"settle.blocked .*event={BAD} key=5 .*lock_timeout")
    run.no_failures()
    assert run.finish(ordered=options.get("ordering") != "unordered") == 0 and came_once(run)


@pytest.mark.parametrize("way", WAYS)
def test_a_row_that_somebody_holds_keeps_nothing_else_waiting_and_nothing_comes_twice(run, way):
    hold_one_row(run, **WAYS[way])


def test_behind_a_pooler_too(run, pg):
    with PgBouncer(pg, user=RELAY_ROLE, settings={"default_pool_size": 20}) as bouncer:
        hold_one_row(run, database=bouncer.dsn(run.db.name))


@pytest.mark.parametrize("locks", ["advisory", "rows"])
def test_what_a_trigger_waits_for_keeps_its_event_alone(run, locks):
    """Where only the claim's transaction can settle, the event's lock ends with it: each relay may deliver it once."""
    run.db.psql("create table public.busy (id int); insert into public.busy values (1);"
                " grant select, update on public.busy to outbox_relay; grant update (id) on public.events to outbox_relay;"
                + SLOW.format(body=f"if old.id = {BAD} then perform from public.busy for update; end if;"))
    run.add(EVENTS, KEYS)
    with held(run, "select from public.busy for update"):
        run.start_running(relays=2, ordering="unordered", locks=locks)
        wait_until(lambda: run.db.query("select id from public.events") == [(BAD,)], 60, "all others to be settled")
        time.sleep(LONGER_THAN_LOCK_TIMEOUT_S)
        run.add(KEYS, KEYS)
        wait_until(lambda: run.db.query("select id from public.events") == [(BAD,)], 60, "what comes later to be settled")
    run.wait_until_empty()
    run.stop()
    run.no_failures()
    counts = Counter(receipt.id for receipt in run.target.receipts())
    assert counts.pop(BAD) <= (2 if locks == "rows" else 1)
    assert set(counts.values()) == {1} and len(counts) == EVENTS + KEYS - 1


def test_many_rows_that_somebody_holds_keep_no_others(run):
    run.add(EVENTS, KEYS)
    with held(run, "select from public.events where order_id %% 2 = 1 for update", ()):
        run.start_running(relays=2)
        wait_until(lambda: run.shop.left() == EVENTS // 2, 60, "the others to be settled")
        time.sleep(LONGER_THAN_LOCK_TIMEOUT_S)
        assert came_once(run)
    assert run.finish() == 0 and came_once(run)


@pytest.mark.parametrize("statement_timeout", ["30s", "1s"])
def test_a_table_that_somebody_has_to_himself_for_long_costs_no_delivery(run, statement_timeout):
    """As while an index is made: it can be read, and nothing can be deleted. Whatever a statement may take."""
    run.add(EVENTS, KEYS)
    with held(run, "lock table public.events in share mode"):
        run.start_running(relays=2, top=f"statement_timeout: {statement_timeout}")
        run.wait_for_log("settle.failed .*lock_timeout")
        time.sleep(LONGER_THAN_LOCK_TIMEOUT_S)
    assert run.finish() == 0 and came_once(run)


@pytest.mark.parametrize("way", WAYS)
def test_rows_that_take_longer_together_than_a_statement_may_are_settled_in_parts(run, way):
    run.db.psql(SLOW.format(body="perform pg_sleep(0.02);"))
    run.add(EVENTS, KEYS)
    run.start_running(relays=2, top="statement_timeout: 1s", **WAYS[way])
    assert run.finish(ordered=way != "unordered") == 0 and came_once(run)
    assert way == "few_keys" or run.logged("settle.failed .*57014")
    run.no_failures()


def test_a_row_that_takes_longer_than_a_statement_may_makes_its_key_wait_and_nothing_else(run):
    run.db.psql(SLOW.format(body=f"if old.id = {BAD} then perform pg_sleep(3); end if;"))
    run.add(EVENTS, KEYS)
    run.start_running(relays=2, top="statement_timeout: 1s", retry="{ base: 20ms, max: 200ms, attempts: 100000 }")
    wait_until(lambda: only_key_5_is_left(run.db), 60, "all others to be settled")
    run.wait_for_log(f"event.stuck .*event={BAD} key=5 .*57014")
    run.add(KEYS, KEYS)
    wait_until(lambda: only_key_5_is_left(run.db), 60, "what comes later to be settled")
    run.db.psql("drop trigger slow on public.events")
    run.wait_until_empty()
    run.stop()
    counts = Counter(receipt.id for receipt in run.target.receipts())
    assert counts.pop(BAD) >= 2 and set(counts.values()) == {1}


def test_behind_a_pooler_a_row_may_take_as_long_as_we_say_and_not_as_long_as_the_role_may(run):
    """A cancelled statement whose time was not up would pass for one that somebody's lock keeps waiting."""
    run.db.psql(f"alter role {RELAY_ROLE} in database {run.db.name} set statement_timeout = '1s';"
                + SLOW.format(body=f"if old.id = {BAD} then perform pg_sleep(2); end if;"))
    run.add(EVENTS, KEYS)
    run.start_running(relays=1, top="prepared: off")
    assert run.finish() == 0 and came_once(run)
    assert not run.logged("settle.failed|settle.blocked")
