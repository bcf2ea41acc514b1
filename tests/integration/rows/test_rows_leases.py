"""Rows of docs/proof.md that relays with leases keep, each test named by its row."""

import socket
import time

import pytest

from tests.support.leases import hang, lease_all, lease_lost, leased
from tests.support.process import wait_until
from tests.support.servers import Reply
from tests.support.shop import Shop
from tests.support.targets import HttpTarget


@pytest.fixture
def shop(db):
    return Shop(db, orders=100)


@pytest.fixture
def target(http):
    return HttpTarget(http)


def test_q2_one_relay_has_a_task_and_the_view_says_who_and_since_when(relay, shop, target, http):
    answer = hang(http, "a")
    one = relay(leased(shop, target, "1h", relay="a"))
    (event,) = lease_all(shop, http, 1)
    relay(leased(shop, target, "1h", relay="b"))
    seen = "select key, event_id, worker, now() - taken_at < '1 min', expires_at > now() + '50 min', over, attempt from outbox.status_leases"
    assert shop.db.query(seen) == [("1", event.id, f"{socket.gethostname()}:{one.pid}", True, True, False, 1)]
    assert shop.db.query("select backend_pid in (select pid from pg_stat_activity) from outbox.parked") == [(True,)]
    answer()
    wait_until(lambda: shop.left() == 0, 30, "the task to be done")
    assert len(http.requests) == 1


def test_q3_a_relays_task_is_taken_again_after_its_lease(relay, shop, target, http):
    hang(http, "a")
    victim = relay(leased(shop, target, "2s", "name", relay="a"))
    (event,) = lease_all(shop, http, 1)
    victim.kill()
    (until,) = shop.db.query("select extract(epoch from expires_at - clock_timestamp()) from outbox.status_leases")[0]
    heir = relay(leased(shop, target, "2s", "name", relay="b"))
    began = time.monotonic()
    wait_until(lambda: shop.left() == 0, 30, "the task to be taken over")
    assert float(until) - 0.1 < time.monotonic() - began
    assert heir.stop() == 0
    shop.check(target.receipts(), [lease_lost([event])])


def test_l2_a_relays_heartbeat_keeps_a_task_for_as_long_as_it_takes(relay, shop, target, http):
    answer = hang(http, "a")
    relay(leased(shop, target, "2s", relay="a"))
    lease_all(shop, http, 1)
    expires_at = "select expires_at from outbox.status_leases where not over"
    ((first,),) = shop.db.query(expires_at)
    wait_until(lambda: (shop.db.query(expires_at)[0][0] - first).total_seconds() > 2, 30, "the lease to be renewed more than once")
    answer()
    wait_until(lambda: shop.left() == 0, 30, "the task to be done")


def test_l7_a_relay_is_missed_by_its_backends_pid_and_start_time(relay, shop, target, http):
    hang(http, "a")
    victim = relay(leased(shop, target, "1h", relay="a"))
    (event,) = lease_all(shop, http, 1)
    heir = relay(leased(shop, target, "1h", relay="b"))
    victim.kill()
    wait_until(lambda: shop.left() == 0, 30, "the task to be taken over")
    assert heir.stop() == 0 and heir.logged("lease.ownerless.*keys=1")
    shop.check(target.receipts(), [lease_lost([event])])


def test_l7_a_backend_of_the_same_pid_that_is_another_does_not_count(relay, shop, target, http):
    hang(http, "a")
    relays = [relay(leased(shop, target, "1h", relay="a"))]
    lease_all(shop, http, 1)
    shop.db.query("update outbox.parked set backend_start = backend_start - interval '1 s'")
    relays.append(relay(leased(shop, target, "1h", relay="b")))
    wait_until(lambda: any(one.logged("lease.ownerless.*keys=1") for one in relays), 30, "the lease to end")


def test_l4_a_relay_that_is_stopped_finishes_what_is_on_its_way_and_gives_back_the_rest(relay, shop, target, http):
    http.rule(lambda request: True, Reply(delay_s=1.0), times=1)
    events = shop.insert([1, 1, 1])
    one = relay(leased(shop, target, "1h"))
    wait_until(lambda: http.in_flight == 1, 30, "the first event to be under way")
    assert one.stop() == 0
    assert shop.db.query("select id from public.events order by id") == [(event.id,) for event in events[1:]]
    assert shop.db.query("select event_id, attempts, token, next_at <= clock_timestamp() from outbox.parked") == [(events[1].id, 0, None, True)]
    assert len(http.requests) == 1


def test_t8_l5_a_task_that_outlives_its_relays_is_set_aside_after_its_last_attempt(relay, shop, target, http):
    shop.insert([1, 1])
    http.rule(lambda request: request.headers["event-id"] == "1", Reply(action="hang"))
    for attempt in (1, 2):
        victim = relay(leased(shop, target, "1h", retry="{ attempts: 2 }"))
        wait_until(lambda number=attempt: len(http.requests) == number, 30, "the event to be under way")
        assert shop.db.query("select event_id, attempt from outbox.status_leases") == [(1, attempt)]
        victim.kill()
    one = relay(leased(shop, target, "1h", retry="{ attempts: 2 }"))
    wait_until(lambda: shop.left() == 0, 30, "the table to be empty")
    assert one.stop() == 0
    assert shop.db.query("select event_id, attempts, reason from outbox.dead") == [(1, 2, "the lease of its last attempt ran out")]
    assert [request.headers["event-id"] for request in http.requests] == ["1", "1", "2"]
