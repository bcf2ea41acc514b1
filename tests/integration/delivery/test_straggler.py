"""A key whose sink is slow does not keep what was claimed with it waiting: its lock outlives the claim's transaction.
Behind a pooler that transaction stays open, and what is done of the claim is settled on another connection meanwhile."""

import signal
import threading
import time

import pytest

from tests.support.postgres import RELAY_ROLE
from tests.support.process import wait_until
from tests.support.servers import HANG, PgBouncer, Reply
from tests.support.shop import Shop
from tests.support.targets import HttpTarget

BLOCKED = ("select count(*) from pg_stat_activity where application_name = 'pgcourier' and wait_event_type = 'Lock'"
           " and datname = current_database()")


def test_a_claim_keeps_its_locks_until_what_was_settled_ahead_of_its_end_is_committed(db, relay, http):
    target, shop = HttpTarget(http), Shop(db, orders=1)
    events = shop.insert([1, 1, 1])
    http.rule(lambda request: request.headers["event-id"] == str(events[2].id), Reply(200, delay_s=1.0), times=1)
    blocker = db.connect(autocommit=False)
    blocker.cursor().execute("select from public.events where id = %s for update", (events[0].id,))
    relays = [relay(shop.config(target.sink(relay=name))) for name in "ab"]
    wait_until(lambda: db.value(BLOCKED), 60, "the early settlement to wait for the row")
    wait_until(lambda: len(http.requests) == 3 and http.in_flight == 0, 60, "all three events to be delivered")
    time.sleep(0.3)  # for whoever takes the key now; nobody may
    blocker.rollback()
    wait_until(lambda: shop.left() == 0, 60, "the table to be empty")
    assert [one.stop() for one in relays] == [0, 0]
    shop.check(target.receipts())
    blocker.close()


@pytest.mark.parametrize("connections", [1, 2])
def test_keys_that_a_straggling_claim_holds_are_delivered_again_and_again(db, relay, http, connections):
    """Its transaction gathers locks until it has as many as it may; no other claim can have those keys meanwhile."""
    slow_s, keys = 120, 12 if connections == 1 else 60  # one connection has nothing but what the slow key's claim may lock
    target, shop = HttpTarget(http), Shop(db, orders=keys + 1)
    http.rule(lambda request: request.headers.get("event-key") == str(keys + 1), Reply(delay_s=slow_s), times=1)
    one = relay(shop.config(target.sink(timeout="300s"), connections=connections, keys_per_claim=4))
    (slow,) = shop.insert([keys + 1])
    wait_until(lambda: http.in_flight == 1, 60, "the slow key to be under way")
    for turn in range(6):
        for start in range(turn % 3, keys, 3):
            shop.insert(range(start + 1, min(start + 3, keys) + 1))
        wait_until(lambda: db.query("select id from public.events") == [(slow.id,)], slow_s / 4,
                   f"everything but the slow key to be delivered in turn {turn}")
    assert http.in_flight == 1, "the slow request ended too early for the test to mean anything"
    one.stop(signal.SIGKILL)


LOCKS = ("select count(*) from pg_locks where locktype = 'advisory' and objsubid = 2 and granted"
         " and database = (select oid from pg_database where datname = current_database())")
READS = ("select count(*) from pg_locks l join pg_stat_activity a using (pid) where a.application_name = 'pgcourier'"
         " and l.relation = 'public.events'::regclass")
HELD = ("select count(*) from pg_stat_activity where application_name = 'pgcourier' and datname = current_database()"
        " and (backend_xid is not null or backend_xmin is not null)")


def test_a_straggler_keeps_its_own_lock_and_nothing_else(db, relay, http):
    """Neither the keys that were claimed with it, nor the table, nor a snapshot."""
    target, shop = HttpTarget(http), Shop(db, orders=20)
    http.rule(lambda request: request.headers["event-key"] in ("3", "4"), Reply(delay_s=120))
    shop.insert(range(1, 21))
    one = relay(shop.config(target.sink(timeout="300s"), connections=1, latency="60s", poll="{ max: 60s }"))
    wait_until(lambda: shop.left() == 2 and db.value(LOCKS) == 2, 60, "the others to be settled and let go")
    wait_until(lambda: db.value(HELD) == 0, 30, "no snapshot to be held")
    db.psql("set lock_timeout = '20s'; begin; lock table public.events in access exclusive mode; commit")
    assert db.value(LOCKS) == http.in_flight == 2
    one.stop(signal.SIGKILL)
    wait_until(lambda: db.value(LOCKS) == 0, 30, "the locks to go with their session")


WAITING = ("select pid, state_change from pg_stat_activity where application_name = 'pgcourier' and state = 'idle in transaction'"
           " and datname = current_database()")
MIGRATION = "set lock_timeout = '1s'; alter table public.events add column new_{number} int"


def test_a_claim_that_finds_nothing_beside_a_straggler_gives_the_table_back(db, relay, http):
    """It has read the table, and the next claim, which would end its transaction, may be long in coming."""
    target, shop = HttpTarget(http), Shop(db, orders=1)
    http.respond = lambda request: Reply(action=HANG)
    shop.insert([1])
    one = relay(shop.config(target.sink(timeout="300s"), connections=1, latency="1s", poll="{ max: 4s }"))
    wait_until(lambda: http.in_flight == 1 and db.query(WAITING) and not db.value(READS), 60, "the straggler to be kept")
    for number in range(3):
        (before,) = wait_until(lambda: db.query(WAITING))
        wait_until(lambda: db.query(WAITING) not in ([], [before]), 60, "a claim to have found nothing")
        db.psql(MIGRATION.format(number=number))
    one.stop(signal.SIGKILL)


def test_migrations_get_through_beside_slow_deliveries(db, relay, http):
    target, shop = HttpTarget(http), Shop(db)
    http.respond = lambda request: Reply(action=HANG) if request.headers["event-key"] in ("1", "2", "3") else Reply()
    shop.insert([1, 2, 3])
    one = relay(shop.config(target.sink(timeout="300s")))
    wait_until(lambda: http.in_flight == 3, 60, "the slow deliveries to be under way")
    for number in range(20):
        shop.insert([4 + number % 3])
        wait_until(lambda: shop.left() == 3, 60, "what is quick to be delivered")
        db.psql(MIGRATION.format(number=number))
    assert http.in_flight == 3
    http.respond = None
    http.release()
    wait_until(lambda: shop.left() == 0, 60, "the table to be empty")
    assert one.stop() == 0
    shop.check(target.receipts())


@pytest.fixture(params=["directly", "pooled"])
def database(request, pg, db):
    """What relays connect to; None: the server itself."""
    if request.param == "directly":
        yield None
        return
    with PgBouncer(pg, user=RELAY_ROLE, settings={"default_pool_size": 5}) as bouncer:
        yield bouncer.dsn(db.name)


def is_wanted(db):
    return db.value("select count(*) from pg_locks where not granted and mode = 'AccessExclusiveLock'"
                    " and relation = 'public.events'::regclass") > 0


def test_somebody_who_wants_the_table_for_himself_gets_it(db, database, relay, http):
    """A claim's transaction, which has read the table, ends before a slow delivery does. Behind a pooler it cannot: he waits
    for the claim; the early settlement of what it holds waits behind him; and the claim for that. All of them, and every
    producer, would wait for ever if the settlement did not give up."""
    shop, target = Shop(db), HttpTarget(http)
    one = relay(shop.config(target.sink(), database=database, connections=1))
    somebody = threading.Thread(target=lambda: db.psql("begin; lock table public.events in access exclusive mode; commit"),
                                daemon=True)

    def answer(_request):
        if somebody.ident:
            return Reply()
        somebody.start()
        if database:
            wait_until(lambda: is_wanted(db), 30, "him to wait for the claim")
            return Reply(delay_s=1)  # the other event is settled meanwhile
        wait_until(lambda: not somebody.is_alive(), 30, "him to have had it, while this delivery is under way")
        return Reply()

    http.respond = answer
    shop.insert([1, 2])
    wait_until(lambda: somebody.ident and not somebody.is_alive(), 60, "him to have had it")
    wait_until(lambda: shop.left() == 0, 30, "the table to be empty")
    assert one.stop() == 0
    shop.check(target.receipts())
