"""What ends a session or a transaction that lasts, or waits for long, does not end those of a relay and of a command:
transaction_timeout, which PostgreSQL has since 17, idle_session_timeout and idle_in_transaction_session_timeout."""

import pytest

from tests.support.postgres import RELAY_ROLE
from tests.support.servers import HANG, PgBouncer, Reply, wait_until
from tests.support.shop import Shop
from tests.support.targets import HttpTarget

TIMEOUTS = ("transaction_timeout", "idle_session_timeout", "idle_in_transaction_session_timeout")
LIMIT = "interval '1500 ms'"
# Sessions that have come through what would have ended them after a second.
LASTING = f"""
select count(*) from pg_stat_activity where application_name like 'pgcourier%' and datname = current_database()
and state in ('idle', 'idle in transaction') and clock_timestamp() - state_change > {LIMIT}"""
LASTING_POOLED = f"""
select count(*) from pg_stat_activity where usename = '{RELAY_ROLE}' and datname = current_database()
and state = 'idle in transaction' and clock_timestamp() - xact_start > {LIMIT}"""


@pytest.fixture
def db(db_of):
    database = db_of(18)
    for name in TIMEOUTS:
        database.query(f"alter database {database.name} set {name} = '1s'")
    return database


@pytest.fixture
def shop(db):
    shop = Shop(db)
    db.query(f"grant update (id) on public.events to {RELAY_ROLE}")
    return shop


def deliver_slowly(shop, http, lasting, count):
    """Four events whose deliveries last until `count` sessions have: each comes once."""
    shop.add(4, 4)
    wait_until(lambda: len(http.requests) > 4 or shop.db.value(lasting) >= count, 60, "the sessions to last")
    assert len(http.requests) == http.in_flight == 4
    http.respond = None
    http.release()
    wait_until(lambda: shop.left() == 0, 60, "all to be settled")


QUEUES = {"per_key": {}, "unordered": {"ordering": "unordered", "locks": "advisory"},
          "locks rows": {"ordering": "unordered", "locks": "rows"}, "lease": {"ordering": "lease"}}


@pytest.mark.parametrize("queue", QUEUES)
def test_sessions_and_transactions_last_as_long_as_deliveries(shop, relay, http, queue):
    http.respond = lambda request: Reply(action=HANG)
    target = HttpTarget(http)
    one = relay(shop.config(target.sink(timeout="300s"), connections=1, latency="60s", poll="{ max: 60s }", **QUEUES[queue]))
    deliver_slowly(shop, http, LASTING, 1)
    assert one.stop() == 0
    assert not one.logged("database.down|claim.lost")
    shop.check(target.receipts())


def test_sessions_last_as_long_as_a_queue_rests(shop, relay, http):
    shop.db.query("select outbox.install_wake('public.events')")
    one = relay(shop.config(HttpTarget(http).sink(), connections=1, poll="{ max: 60s }"))
    wait_until(lambda: shop.db.value(LASTING) == 3, 60, "those that claim, settle and listen to last")
    shop.add(1, 1)
    wait_until(lambda: shop.left() == 0, 20, "the event, long before the next look")
    assert not one.logged("database.down")


@pytest.mark.parametrize("queue", ["per_key", "locks rows"])
def test_transactions_last_as_long_as_deliveries_where_a_pooler_shares_the_session(shop, relay, http, queue):
    """And only those: whoever is next in the session finds what its role says."""
    http.respond = lambda request: Reply(action=HANG)
    target = HttpTarget(http)
    with PgBouncer(shop.db.server, user=RELAY_ROLE, settings={"default_pool_size": 5}) as pooler:
        config = shop.config(target.sink(timeout="300s"), database=pooler.dsn(shop.db.name), connections=1, **QUEUES[queue])
        one = relay(config)
        deliver_slowly(shop, http, LASTING_POOLED, 1)
        assert one.stop() == 0
        assert not one.logged("database.down|claim.lost")
        found = shop.db.server.connect(shop.db.name, user=RELAY_ROLE, host="127.0.0.1", port=pooler.port)
        with found.cursor() as cursor:
            cursor.execute("select setting from pg_settings where name = any (%s)", (list(TIMEOUTS),))
            assert cursor.fetchall() == [("1000",)] * 3
        found.close()
    shop.check(target.receipts())


def test_whoever_holds_a_row_for_longer_keeps_no_others_where_a_pooler_shares_the_session(shop, relay, http):
    target = HttpTarget(http)
    with PgBouncer(shop.db.server, user=RELAY_ROLE, settings={"default_pool_size": 5}) as pooler:
        (held, *_) = shop.insert([1, 2, 3])
        holder = shop.db.connect(autocommit=False, options="'-ctransaction_timeout=0 -cidle_in_transaction_session_timeout=0'")
        holder.cursor().execute("select from public.events where id = %s for update", (held.id,))
        one = relay(shop.config(target.sink(), database=pooler.dsn(shop.db.name)))
        wait_until(lambda: shop.left() == 1, 60, "the others to be settled")
        holder.rollback()
        wait_until(lambda: shop.left() == 0, 60, "all to be settled")
        assert one.stop() == 0
        holder.close()
    shop.check(target.receipts())
