"""`ordering: lease`: what a relay has claimed is its own by an entry in outbox.parked, and not by a lock that a connection holds."""

import signal
import time
from collections import Counter

import pytest

from tests.support.http_receiver import HANG
from tests.support.leases import LEASES, hang, lease_all, lease_lost, leased
from tests.support.postgres import OWNER_ROLE
from tests.support.process import wait_until
from tests.support.relay import run_command
from tests.support.servers import PgBouncer, Reply
from tests.support.shop import Shop
from tests.support.targets import HttpTarget
from tests.support.workers import Worker, owner

CONNECTED = "select count(*) from pg_stat_activity where application_name = 'pgcourier' and datname = current_database()"


@pytest.fixture
def shop(db):
    return Shop(db, orders=1000)


@pytest.fixture
def target(http):
    return HttpTarget(http)


def test_events_are_delivered_in_order_and_nothing_is_left_behind(relay, shop, target):
    relays = [relay(leased(shop, target, relay=name)) for name in "ab"]
    target.linger()
    shop.produce(2000, producers=4)
    wait_until(lambda: shop.left() == 0, 60, "the table to be empty")
    assert [one.stop() for one in relays] == [0, 0]
    shop.check(target.receipts())
    assert shop.db.query("select * from outbox.parked") == []


def test_a_delivery_that_takes_longer_than_its_lease_is_renewed_and_holds_back_nothing(relay, shop, target, http):
    http.rule(lambda request: True, Reply(delay_s=4.0), times=1)
    relays = [relay(leased(shop, target, "1s", relay=name)) for name in "ab"]
    shop.insert([1, 1])
    wait_until(lambda: http.in_flight == 1, 30, "the delivery to be under way")
    until = time.monotonic() + 3.0
    while time.monotonic() < until:
        assert shop.db.value(LEASES) == 1 and shop.db.query("select over from outbox.status_leases") == [(False,)]
        assert shop.db.query("select pid from pg_stat_activity where application_name = 'pgcourier' and datname = current_database()"
                             " and now() - xact_start > '500 ms'") == []
        time.sleep(0.05)
    wait_until(lambda: shop.left() == 0, 30, "the table to be empty")
    assert [one.stop() for one in relays] == [0, 0]
    shop.check(target.receipts())
    assert len(http.requests) == 2


def test_a_lease_whose_key_is_being_paused_is_renewed_after_that(relay, shop, target, http):
    answer = hang(http, "a")
    one = relay(leased(shop, target, "2s", relay="a"))
    lease_all(shop, http, 3)
    operator = shop.db.connect(autocommit=False)
    operator.cursor().execute("select outbox.pause(queue, key) from outbox.parked where token is not null")
    wait_until(lambda: one.logged("lease.held.*keys=3"), 30, "the renewal to find them locked")
    operator.commit()
    over_at = shop.db.value("select max(resume_at) from outbox.parked")
    wait_until(lambda: shop.db.value("select count(*) from outbox.parked where resume_at > %s", [over_at]) == 3, 30, "the leases to be renewed")
    answer()
    wait_until(lambda: shop.left() == 0, 30, "the events to be settled")
    assert not one.logged("lease.lost") and one.stop() == 0
    assert len(http.requests) == 3


def test_a_lease_whose_entry_somebody_holds_costs_no_others_their_terms(relay, shop, target, http):
    answer = hang(http, "a")
    one = relay(leased(shop, target, "2s", "name", relay="a"))
    *others, held = lease_all(shop, http, 10)
    wait_until(lambda: http.in_flight == 10, 30, "all deliveries to be under way")
    other = relay(leased(shop, target, "2s", "name", relay="b"))
    operator = shop.db.connect(autocommit=False)
    operator.cursor().execute("select outbox.pause('shop', %s)", (str(held.key),))
    others_at = shop.db.value("select max(next_at) from outbox.parked where event_id <> %s", [held.id])

    def held_one_is_over():
        """The others are held by the same relay, and their terms go on, which began with its."""
        assert shop.db.query("select distinct over, worker like %s from outbox.status_leases where event_id <> %s",
                             [f"%:{one.pid}", held.id]) == [(False, True)]
        return one.logged("lease.over.*keys=1") and shop.db.value("select clock_timestamp() > %s + interval '2 s'", [others_at])

    wait_until(held_one_is_over, 30, "the terms of all to have been over twice")
    assert one.logged("lease.held.*keys=1") and not other.logged("delivery")
    operator.close()
    answer()
    wait_until(lambda: shop.left() == 0, 30, "everything to be settled")
    assert [each.stop() for each in (one, other)] == [0, 0]
    times = Counter(int(request.headers["event-id"]) for request in http.requests)
    assert times.pop(held.id) <= 2 and set(times) == {event.id for event in others} and set(times.values()) == {1}


@pytest.fixture(params=["direct", "pooler"])
def database(request, pg, db):
    """What a relay connects to."""
    if request.param == "direct":
        yield db.dsn
        return
    with PgBouncer(pg) as pooler:
        yield f"{pooler.dsn(db.name)} application_name=pgcourier"


def test_leases_do_not_run_out_behind_a_settlement_that_waits_for_a_row(relay, shop, target, http, database):
    http.rule(lambda request: True, Reply(delay_s=1.0), times=1)
    answer = hang(http, "a")
    relays = [relay(leased(shop, target, "3s", "name", relay="a", database=database))]
    events = lease_all(shop, http, 10)
    other = shop.db.connect(autocommit=False)
    other.cursor().execute("select from public.events where id = %s for update", (http.requests[0].headers["event-id"],))
    relays.append(relay(leased(shop, target, "3s", "name", relay="b")))
    wait_until(lambda: shop.db.query("select pid from pg_stat_activity where wait_event_type = 'Lock'"), 30, "the settlement to wait")
    until = time.monotonic() + 5.0
    while time.monotonic() < until:
        assert shop.db.query("select distinct over, worker like %s from outbox.status_leases", [f"%:{relays[0].pid}"]) == [(False, True)]
        time.sleep(0.02)
    other.close()
    answer()
    wait_until(lambda: shop.left() == 0, 30, "everything to be settled")
    assert [one.stop() for one in relays] == [0, 0]
    assert len(http.requests) == len(events)


@pytest.mark.alone
@pytest.mark.parametrize("owner, duration", [("backend", "1h"), ("name", "3s")])
def test_500_keys_of_a_killed_relay_are_taken_over(relay, shop, target, http, owner, duration):
    hang(http, "a")
    answer = hang(http, "b")
    settings = {"sink": {"max_in_flight": 500}, "owner": owner, "duration": duration}
    victim = relay(leased(shop, target, relay="a", **settings))
    lost = lease_all(shop, http, 500)
    heir = relay(leased(shop, target, relay="b", **settings))
    wait_until(lambda: shop.db.value(CONNECTED) == 6, 10, "the other relay to be there")
    victim.kill()
    when = "clock_timestamp()" if owner == "backend" else "max(expires_at)"
    due_at = shop.db.value(f"select {when} from outbox.status_leases")
    wait_until(lambda: shop.db.value(f"select count(*) from outbox.status_leases where worker like '%:{heir.pid}'") == 500, 30, "the take-over")
    late_s = float(shop.db.value("select extract(epoch from max(taken_at) - %s) from outbox.status_leases", (due_at,)))
    print(f"taken over {late_s:.2f} s after {'the relay was killed' if owner == 'backend' else 'the expiry'}")
    assert late_s < (2.0 if owner == "backend" else 1.0)
    answer()
    wait_until(lambda: shop.left() == 0, 30, "everything to be delivered")
    assert heir.stop() == 0
    shop.check(target.receipts(), [lease_lost(lost)])


@pytest.mark.parametrize("peer", [{"ordering": "lease", "lease": "{ duration: 1h, owner: name }"}, {}], ids=["by name", "by locks"])
def test_a_relay_that_is_gone_is_missed_by_those_whose_backends_own_no_leases(relay, shop, target, http, peer):
    hang(http, "a")
    victim = relay(leased(shop, target, "1h", relay="a"))
    lost = lease_all(shop, http, 10)
    heir = relay(shop.config(target.sink(relay="b"), **peer))
    wait_until(lambda: shop.db.value(CONNECTED) == 6, 10, "the other relay to be there")
    victim.kill()
    wait_until(lambda: shop.left() == 0, 30, "what the one had leased to be taken over")
    assert heir.logged("lease.ownerless.*keys=10") and heir.stop() == 0
    shop.check(target.receipts(), [lease_lost(lost)])


def test_a_relay_that_is_gone_is_missed_by_workers(relay, shop, target, http):
    hang(http, "a")
    victim = relay(leased(shop, target, "1h", relay="a"))
    lost = lease_all(shop, http, 10)
    shop.db.query(f"grant select, delete on public.events to {OWNER_ROLE}")
    owner(shop.db, "select outbox.queue_set('shop', 'public.events', key_column => 'order_id', type_column => 'status', payload_column => 'payload')")
    worker = Worker(shop.db, "shop")
    assert worker.take(10) == []
    victim.kill()
    wait_until(lambda: [worker.done(task.token) for task in worker.take(10)] and shop.left() == 0, 30, "what it had leased to be taken over",
               interval_s=0.1)
    worker.close()
    assert sorted(receipt.id for receipt in worker.receipts) == [event.id for event in lost]
    shop.check(target.receipts() + worker.receipts, [lease_lost(lost)])


def test_an_answer_that_comes_late_changes_nothing_and_is_counted(relay, shop, target, http):
    answer = hang(http, "a")
    one = relay(leased(shop, target, "1h", relay="a"))
    (event,) = lease_all(shop, http, 1)
    shop.db.query("update outbox.parked set token = gen_random_uuid(), worker = 'somebody else'")
    answer()
    wait_until(lambda: one.logged("lease.lost.*keys=1"), 30, "the relay to see that it is late")
    assert shop.db.query("select id from public.events") == [(event.id,)]
    assert shop.db.query("select worker, attempts, last_error from outbox.parked") == [("somebody else", 0, "")]
    assert one.stop() == 0
    assert one.logged("queue.stats.*leases_lost=1")


def test_a_late_answer_counts_while_nobody_has_taken_over(relay, shop, target, http):
    answer = hang(http, "a")
    one = relay(leased(shop, target, "1h", relay="a"))
    lease_all(shop, http, 1)
    shop.db.query("select outbox.pause('shop')")
    wait_until(lambda: one.logged("queue.paused"), 30, "nobody to claim any more")
    shop.db.query("update outbox.parked set next_at = clock_timestamp()")
    answer()
    wait_until(lambda: shop.left() == 0, 30, "the answer to count")
    assert one.stop() == 0
    assert one.logged("queue.stats.*leases_lost=0")


def lease_one(shop, http, key):
    (event,) = shop.insert([key])
    wait_until(lambda: shop.db.value(LEASES) == 1 and http.in_flight == 1, 30, "it to be leased and under way")
    return event


def end_term_under_lock(shop, event):
    """Somebody who found the term over has the lock of the event's key, or its own: he may be delivering it. A connection."""
    other = shop.db.connect(autocommit=False)
    other.cursor().execute("select pg_advisory_xact_lock(outbox.lock_class_of('public.events'), outbox.lock_hash('bigint', %s, %s))",
                           (event.key, event.id))
    shop.db.query("update outbox.parked set next_at = clock_timestamp()")
    return other


@pytest.mark.parametrize("key", [1, None], ids=["key", "no key"])
def test_a_late_answer_does_not_count_while_somebody_has_the_lock(relay, shop, target, http, key):
    answer = hang(http, "a")
    one = relay(leased(shop, target, "1h", relay="a"))
    event = lease_one(shop, http, key)
    other = end_term_under_lock(shop, event)
    entry = shop.db.query("select * from outbox.parked")
    answer()
    wait_until(lambda: one.logged("lease.lost.*keys=1"), 30, "the relay to see that it is late")
    assert shop.left() == 1 and shop.db.query("select * from outbox.parked") == entry
    other.close()
    wait_until(lambda: shop.left() == 0, 30, "it to be delivered again")
    assert one.stop() == 0
    shop.check(target.receipts(), [lease_lost([event])])


@pytest.mark.parametrize("key", [1, None], ids=["key", "no key"])
def test_a_lease_that_is_over_is_not_renewed_while_somebody_has_the_lock(relay, shop, target, http, key):
    answer = hang(http, "a")
    one = relay(leased(shop, target, "3s", relay="a"))
    event = lease_one(shop, http, key)
    other = end_term_under_lock(shop, event)
    wait_until(lambda: one.logged("lease.lost.*keys=1"), 30, "the renewal to be refused")
    answer()
    other.close()
    wait_until(lambda: shop.left() == 0, 30, "it to be delivered again")
    assert one.stop() == 0
    shop.check(target.receipts(), [lease_lost([event])])


@pytest.mark.parametrize("owner", ["backend", "name"])
def test_a_relay_that_stood_still_beyond_its_terms_settles_nothing_wrong(relay, shop, target, http, owner):
    answer = hang(http, "a")
    sleeper = relay(leased(shop, target, "1s", owner, relay="a"))
    lost = lease_all(shop, http, 50)
    more = shop.insert(range(1, 51))
    sleeper.send(signal.SIGSTOP)
    heir = relay(leased(shop, target, "1s", owner, relay="b"))
    wait_until(lambda: shop.left() == 0, 60, "the terms to run out and everything to be delivered")
    answer()
    sleeper.send(signal.SIGCONT)
    wait_until(lambda: sleeper.logged("lease.lost"), 30, "the relay to see that it is late")
    last = shop.insert(range(1, 51))
    wait_until(lambda: shop.left() == 0, 60, "the table to be empty")
    assert [sleeper.stop(), heir.stop()] == [0, 0]
    shop.check(target.receipts(), [lease_lost(lost)])
    assert len(target.receipts()) <= 2 * len(lost) + len(more) + len(last)


def test_an_event_put_back_in_front_of_one_whose_lease_runs_out_has_not_failed(relay, shop, target, http):
    hang(http, "a")
    one = relay(leased(shop, target, "1s", "name", relay="a", retry="{ attempts: 1 }"))
    early = shop.db.value("select nextval(pg_get_serial_sequence('public.events', 'id'))")
    (event,) = lease_all(shop, http, 1)
    one.kill()
    shop.db.query("insert into public.events select (json_populate_record(e, json_build_object('id', %s))).* from public.events e", [early])
    shop.db.query("update outbox.parked set event_id = %s", [early])
    heir = relay(leased(shop, target, "1s", "name", relay="b", retry="{ attempts: 1 }"))
    wait_until(lambda: shop.left() == 0, 30, "the table to be empty")
    assert heir.stop() == 0
    assert shop.db.query("select event_id, reason from outbox.dead") == []
    assert [receipt.id for receipt in target.receipts()][-2:] == [early, event.id]


@pytest.mark.parametrize("status, left, entry", [(200, 2, (2, 0, "")), (500, 3, (1, 1, "500"))], ids=["not due", "failed"])
def test_an_event_put_back_while_its_key_is_leased_does_not_wait_for_a_later_one(relay, db, http, tmp_path, status, left, entry):
    """The event that is leased fails, or is delivered and the next one is not due."""
    config = f"""
database: "{db.dsn}"
sinks: {{ web: {{ type: http, url: "{http.url}", timeout: 60s }} }}
queues: {{ tasks: {{ sink: web, ordering: lease, retry: {{ base: 24h, max: 24h }}, latency: 1ms, poll: {{ max: 5ms }} }} }}
"""
    path = tmp_path / "pgcourier.yaml"
    path.write_text(config.replace(db.dsn, db.operator_dsn))
    db.let_operator_in("outbox.events")
    http.rule(lambda request: True, Reply(400), times=1)
    one = relay(config)
    early = db.value("insert into outbox.events (aggregateid) values ('a') returning id")
    wait_until(lambda: db.value("select count(*) from outbox.dead") == 1, 30, "it to be refused")
    http.rule(lambda request: True, Reply(action=HANG), times=1)
    http.rule(lambda request: request.headers["event-id"] == str(early + 1), Reply(status))
    db.query("insert into outbox.events (aggregateid, not_before) values ('a', null), ('a', now() + interval '1 hour'), ('a', null)")
    wait_until(lambda: http.in_flight == 1, 30, "the one that is due to be on its way")
    assert run_command("dead", "retry", "-c", str(path), "--all").returncode == 0
    assert db.query("select event_id = %s, token is not null from outbox.parked", (early,)) == [(True, True)]
    http.release(Reply(status))
    wait_until(lambda: db.value("select count(*) from outbox.events") == left, 30, "the one that was put back to be delivered")
    query = "select event_id - %s, attempts, substring(last_error from 'HTTP (500)'), token from outbox.parked where next_at > now() + interval '1 s'"
    wait_until(lambda: db.query(query, (early,)) == [(entry[0], entry[1], entry[2] or None, None)], 30, "the other to wait")
    assert one.stop() == 0


def test_a_relay_that_has_lost_its_connections_goes_on_with_what_is_leased(relay, shop, target, http):
    answer = hang(http, "a")
    one = relay(leased(shop, target, "1h", relay="a"))
    lease_all(shop, http, 20)
    shop.db.query("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pgcourier' and datname = current_database()")
    alive = ("select count(*) from outbox.parked p join pg_stat_activity a on a.pid = p.backend_pid and a.backend_start = p.backend_start"
             " where p.token is not null")
    wait_until(lambda: shop.db.value(alive) == 20, 30, "the leases to be renewed on a new connection")
    answer()
    wait_until(lambda: shop.left() == 0, 30, "what was answered to be settled")
    assert one.stop() == 0
    shop.check(target.receipts())


def test_behind_a_pooler_leases_end_with_their_terms_alone(pg, relay, shop, target, http):
    with PgBouncer(pg) as pooler:
        database = f"{pooler.dsn(shop.db.name)} application_name=pgcourier"
        hang(http, "a")
        victim = relay(leased(shop, target, relay="a", database=database))
        lost = lease_all(shop, http, 20)
        assert shop.db.query("select distinct backend_pid from outbox.parked") == [(None,)]
        heirs = [relay(leased(shop, target, relay=name, database=database)) for name in "bc"]
        victim.kill()
        shop.produce(1000, producers=4)
        wait_until(lambda: shop.left() == 0, 60, "everything to be delivered")
        assert [one.stop() for one in heirs] == [0, 0]
        shop.check(target.receipts(), [lease_lost(lost)])
