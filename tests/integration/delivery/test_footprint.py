"""What a relay costs others: no snapshot and no transaction id while a sink is called, one lock a key, little memory."""

import os
import time
from dataclasses import replace

import pytest

from tests.support.http_receiver import HANG
from tests.support.relay import binary
from tests.support.servers import Reply, wait_until
from tests.support.shop import Shop
from tests.support.targets import HttpTarget

MEGABYTE = 1 << 20
NEVER = Reply(action=HANG)
BACKLOG = 1000000 if os.environ.get("PGCOURIER_DEEP") == "1" else 100000

# The relay's open transactions that run no statement, and what they hold.
IDLE = """
select pid, state_change, backend_xid is not null, backend_xmin is not null
from pg_stat_activity where application_name = 'pgcourier' and datname = current_database()
and state = 'idle in transaction'"""

LOCKED = """
select count(*) from pg_locks where locktype = 'advisory' and objsubid = 2 and granted
and database = (select oid from pg_database where datname = current_database())"""


@pytest.fixture
def shop(db):
    return Shop(db)


def slow_relay(relay, shop, http, reply, **queue):
    http.respond = lambda request: replace(reply)
    return relay(shop.config(f'type: http, url: "{http.url}", max_in_flight: 1000', **queue))


def test_deliveries_hold_no_snapshot_and_no_transaction_id(relay, shop, http):
    """The view reads a session's state and its snapshot one after the other, so a statement may begin in between. Only
    what is seen twice in the same idle time counts."""
    shop.add(200, 50)
    slow_relay(relay, shop, http, Reply(delay_s=0.1))
    wait_until(lambda: http.in_flight > 0)  # what it asks at its start, it asks in a transaction
    idle_times, suspects, held = set(), set(), set()
    while shop.left() > 0:
        for pid, since, xid, xmin in shop.db.query(IDLE):
            idle_times.add((pid, since))
            if xid or xmin:
                (held if (pid, since) in suspects else suspects).add((pid, since))
    assert idle_times, "no sample was taken during a delivery"
    assert not held
    shop.check(HttpTarget(http).receipts())


def test_vacuum_removes_what_dies_during_a_delivery(relay, shop, http):
    shop.db.query("create table public.other as select n from generate_series(1, 1000) as n")
    shop.add(20, 20)
    slow_relay(relay, shop, http, Reply(delay_s=4), latency="1s", poll="{ max: 1s }")
    wait_until(lambda: http.in_flight == 20)
    shop.db.query("delete from public.other")
    notices = shop.db.vacuum("public.other")
    assert "tuples: 1000 removed" in notices and http.in_flight == 20


PLANS = {
    "as it comes": "",
    "sequential scans": "alter database {db} set enable_indexscan = off; alter database {db} set enable_bitmapscan = off;"
                        " alter database {db} set enable_indexonlyscan = off",
    "nothing but nested loops": "alter database {db} set enable_hashjoin = off; alter database {db} set enable_mergejoin = off;"
                                " alter database {db} set enable_material = off",
    "no nested loops": "alter database {db} set enable_nestloop = off",
    "forced parallel": "alter database {db} set {parallel} = on",
    "generic plans": "alter database {db} set plan_cache_mode = force_generic_plan",
}


def set_plan(db, plan):
    # PostgreSQL 16 renamed it.
    parallel = db.value("select name from pg_settings where name in ('force_parallel_mode', 'debug_parallel_query')")
    if PLANS[plan]:
        db.query(PLANS[plan].format(db=db.name, parallel=parallel))


def count_locks(relay, shop, http, keys, **queue):
    """With all deliveries in flight, one for each key, the locks held."""
    slow_relay(relay, shop, http, NEVER, latency="20ms", poll="{ max: 20ms }", **queue)
    wait_until(lambda: http.in_flight == keys, 10, f"{keys} deliveries in flight")
    time.sleep(0.2)  # some more claims, which must not add any
    assert http.in_flight == keys
    return shop.db.value(LOCKED)


@pytest.mark.parametrize("plan", PLANS)
def test_a_claim_locks_what_it_returns_under_every_plan(relay, shop, http, plan):
    shop.add(2000, 100)
    shop.db.query("analyze public.events")
    set_plan(shop.db, plan)
    assert count_locks(relay, shop, http, 100) == 100


@pytest.mark.parametrize("plan", PLANS)
def test_a_claim_that_may_not_take_all_keys_locks_as_many_as_it_returns(relay, shop, http, plan):
    shop.add(2000, 500)
    set_plan(shop.db, plan)
    slow_relay(relay, shop, http, NEVER, keys_per_claim=8, connections=1, latency="1s", poll="{ max: 1s }")
    wait_until(lambda: http.in_flight >= 8)
    wait_until(lambda: shop.db.value(LOCKED) == http.in_flight)


@pytest.mark.parametrize("analyze", [True, False])
def test_a_table_of_ten_rows(relay, shop, http, analyze):
    shop.add(10, 10)
    if analyze:
        shop.db.query("analyze public.events")
    assert count_locks(relay, shop, http, 10) == 10
    http.respond = None
    http.release()
    wait_until(lambda: shop.left() == 0, 60, "all to be settled")
    shop.check(HttpTarget(http).receipts())


@pytest.mark.parametrize("plan", ["as it comes", "sequential scans"])
def test_rows_that_the_filter_leaves_out_are_not_locked(relay, shop, http, plan):
    shop.add(2000, 100)
    set_plan(shop.db, plan)
    assert count_locks(relay, shop, http, 10, where="\"order_id % 10 = 3 and status = 'step'\"") == 10


def test_events_without_a_key_have_a_lock_each(relay, shop, http):
    shop.db.query("insert into public.events (status) select 'step' from generate_series(1, 40)")
    assert count_locks(relay, shop, http, 40) == 40


def test_a_backlog_is_drained_in_64_megabytes(relay, db, tmp_path):
    """A million events with PGCOURIER_DEEP=1."""
    db.query("create table public.events (id bigserial primary key, order_id bigint, status text not null,"
             " payload text not null, created_at timestamptz not null default now())")
    db.query("insert into public.events (order_id, status, payload) select n %% 20000, 'step', repeat('x', 300)"
             " from generate_series(1, %s) as n", (BACKLOG,))
    db.query("create index on public.events (order_id, id)")
    db.query("analyze public.events")
    db.let_relay_in("public.events")
    config = f"""
database: "{db.dsn}"
sinks:
  out: {{ type: discard }}
queues:
  shop:
    table: public.events
    columns: {{ id: id, key: order_id, type: status, payload: payload, created_at: created_at }}
    sink: out
"""
    started = time.monotonic()
    one = relay(config, until_empty=True, program=binary(["release"]))
    while one.exit_code is None:
        one.rss_peak()
        time.sleep(0.05)
    took = time.monotonic() - started
    print(f"{BACKLOG / took:.0f} events/s, {one.peak_bytes // 1024} kB at most")
    assert one.exit_code == 0
    assert db.value("select count(*) from public.events") == 0
    assert one.peak_bytes < 64 * MEGABYTE
