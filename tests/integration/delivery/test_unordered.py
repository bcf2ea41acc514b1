"""Queues whose events wait for nobody: what they promise, with each of their two kinds of locks."""

import os
import random
import signal
import time

import psycopg2
import pytest

from tests.support.fault_run import FaultRun
from tests.support.http_receiver import HANG, Reply
from tests.support.postgres import OWNER_ROLE, RELAY_ROLE
from tests.support.servers import run_command, wait_until
from tests.support.shop import Shop
from tests.support.targets import FileTarget
from tests.support.tasks import LOCKS, Tasks

EVENTS = int(os.environ.get("PGCOURIER_EVENTS", "3000"))
HELD = ("select count(*) from pg_stat_activity where application_name = 'pgcourier' and datname = current_database() and {} is not null")


@pytest.fixture
def tasks(db):
    return Tasks(db)


def web(http, **settings):
    return ", ".join(["type: http", f'url: "{http.url}"', *(f"{name}: {value}" for name, value in settings.items())])


def is_of(event_id):
    return lambda request: request.headers["event-id"] == str(event_id)


@pytest.mark.parametrize("locks", LOCKS)
def test_relays_that_are_killed_lose_nothing_and_repeat_what_they_had_claimed(db, relay, tmp_path, locks):
    rng = random.Random(os.environ.get("PGCOURIER_SEED", "1"))
    shop, most = Shop(db, orders=50), 64
    db.query(f"grant update (id) on public.events to {RELAY_ROLE}")
    run = FaultRun(relay, shop, FileTarget(tmp_path / "events.jsonl"))
    settings = {"ordering": "unordered", "locks": locks, "keys_per_claim": most, "connections": 1}
    run.start(**settings)
    run.start(**settings)
    for _ in range(4):
        shop.produce(EVENTS // 4, producers=4, seed=rng.randint(1, 1000))
        victim = rng.choice(run.running())
        run.fault("a relay is killed", in_flight=most)
        run.target.may_tear()
        victim.kill()
        run.start(**settings)
    run.wait_until_empty()
    run.stop()
    verdict = shop.check(run.target.receipts(), run.faults, ordered=False)
    print(f"{verdict.duplicates} of {len(verdict.receipts)} deliveries came again, {4 * most} might have")


@pytest.mark.parametrize("locks", LOCKS)
def test_failed_task_waits_and_is_given_up_after_its_last_attempt(db, relay, http, tasks, locks):
    bad, good = tasks.add(5, 0)
    http.rule(is_of(bad), Reply(422))
    one = relay(tasks.config(web(http), locks=locks, retry="{ base: 1ms, max: 1ms, attempts: 3 }"))
    wait_until(lambda: tasks.left() == 0, 60, "the table to be empty")
    assert one.stop() == 0
    assert db.query("select event_id, key from outbox.dead") == [(bad, None)]
    assert db.query("select * from outbox.parked") == [] and good in [int(request.headers["event-id"]) for request in http.requests]


@pytest.mark.parametrize("locks", LOCKS)
def test_attempts_are_counted_over_waits(db, relay, http, tasks, locks):
    (bad,) = tasks.add(0)
    http.rule(is_of(bad), Reply(503), times=2)
    one = relay(tasks.config(web(http), locks=locks, retry="{ base: 1ms, max: 1ms, attempts: 3 }"))
    wait_until(lambda: tasks.left() == 0, 60, "the table to be empty")
    assert one.stop() == 0 and len(http.requests) == 3
    assert db.value("select count(*) from outbox.dead") == 0 and db.query("select * from outbox.parked") == []


@pytest.mark.parametrize("locks", LOCKS)
def test_entry_of_a_task_that_somebody_has_deleted_goes(db, relay, http, tasks, locks):
    db.query("insert into outbox.parked (queue, key, event_id, keyless, next_at) values ('tasks', '', 4711, true, now())")
    one = relay(tasks.config(web(http), locks=locks))
    wait_until(lambda: db.query("select * from outbox.parked") == [], what="the entry to go")
    assert one.stop() == 0 and http.requests == []


@pytest.mark.parametrize("locks", LOCKS)
def test_tasks_of_one_customer_are_under_way_at_once_and_tell_whose_they_are(relay, http, tasks, locks):
    tasks.add(0, 0, 0, customer="one and the same")
    http.respond = lambda _: Reply(action=HANG)
    one = relay(tasks.config(web(http), locks=locks))
    wait_until(lambda: http.in_flight == 3, what="all three to be under way")
    http.release()
    wait_until(lambda: tasks.left() == 0, what="the table to be empty")
    assert one.stop() == 0 and {request.headers["event-key"] for request in http.requests} == {"one and the same"}


@pytest.mark.parametrize("locks", LOCKS)
def test_the_least_urgent_are_delivered_while_urgent_ones_never_end(relay, http, tasks, db, locks):
    http.respond = lambda _: Reply(delay_s=0.01)
    (patient,) = tasks.add(-5)
    tasks.fill(300, 9)
    one = relay(tasks.config(web(http, max_in_flight=4), locks=locks, keys_per_claim=4))
    deadline = time.monotonic() + 60
    while not any(is_of(patient)(request) for request in http.requests):
        assert time.monotonic() < deadline, "the least urgent one starves"
        if tasks.left() < 200:
            tasks.fill(200, 9)
    assert tasks.left() > 50
    one.kill()


def test_row_locks_hold_back_vacuum_while_a_task_is_under_way_and_advisory_locks_do_not(db, relay, http, tasks):
    for locks in LOCKS:
        tasks.add(0)
        http.respond = lambda _: Reply(action=HANG)
        one = relay(tasks.config(web(http, timeout="300s"), locks=locks))
        wait_until(lambda: http.in_flight == 1, what="the task to be under way")
        wait_until(lambda: db.value(HELD.format("backend_xmin")) == 0, what="no snapshot to be held")
        assert db.value(HELD.format("backend_xid")) == (1 if locks == "rows" else 0)
        http.respond = None
        http.release()
        wait_until(lambda: tasks.left() == 0, what="the table to be empty")
        assert one.stop() == 0


@pytest.mark.parametrize("locks", LOCKS)
def test_straggler_keeps_its_claim_where_rows_are_locked_and_only_itself_where_ids_are(db, relay, http, tasks, locks):
    slow, *others = tasks.add(*[0] * 20)
    http.rule(is_of(slow), Reply(action=HANG))
    one = relay(tasks.config(web(http, timeout="300s"), locks=locks, connections=1))
    wait_until(lambda: len(http.requests) == 20 and http.in_flight == 1, what="one to be left under way")
    if locks == "advisory":
        wait_until(lambda: tasks.left() == 1, what="the others to be settled")
        more = tasks.add(1, 1)
        wait_until(lambda: tasks.left() == 1, what=f"{more} to be delivered beside the straggler")
    else:
        time.sleep(0.3)
        assert tasks.left() == 20
    http.release()
    wait_until(lambda: tasks.left() == 0, what="the table to be empty")
    assert one.stop() == 0 and len(http.requests) == (22 if locks == "advisory" else 20)


@pytest.mark.parametrize("locks", LOCKS)
def test_drain_waits_for_what_is_under_way(db, relay, http, tasks, tmp_path, locks):
    tasks.add(0)
    http.respond = lambda _: Reply(action=HANG)
    text = tasks.config(web(http, timeout="300s"), locks=locks)
    path = tmp_path / "pgcourier.yaml"
    path.write_text(text)
    one = relay(text)
    wait_until(lambda: http.in_flight == 1, what="the task to be under way")
    assert run_command("drain", "-c", str(path), "--timeout", "1s", "tasks").returncode == 75
    http.release()
    assert run_command("drain", "-c", str(path), "--timeout", "30s", "tasks").returncode == 0
    assert one.stop() == 0 and tasks.left() == 0


def test_check_config_names_the_right_and_the_index_that_are_missing(db, tasks, tmp_path):
    db.query(f"revoke update (id) on public.tasks from {RELAY_ROLE}; drop index tasks_priority;"
             " create index on public.tasks (priority, id)")
    path = tmp_path / "pgcourier.yaml"
    path.write_text(tasks.config("type: discard"))
    done = run_command("check-config", "--database", "-c", str(path))
    said = done.stdout + done.stderr
    assert done.returncode != 0 and "has no UPDATE of any column on public.tasks" in said
    assert f'grant update (id) on public.tasks to {RELAY_ROLE};' in said
    assert 'create index concurrently on "public"."tasks" ("priority" desc, "id");' in said
    db.query(f"grant update (id) on public.tasks to {RELAY_ROLE}; create index on public.tasks (priority desc, id)")
    done = run_command("check-config", "--database", "-c", str(path))
    assert done.returncode == 0 and "priority" not in done.stdout + done.stderr


def test_a_relay_that_stops_gives_its_tasks_back(db, relay, http, tasks):
    ids = tasks.add(*[0] * 10)
    http.respond = lambda _: Reply(delay_s=0.05)
    one = relay(tasks.config(web(http, max_in_flight=2), connections=1))
    wait_until(lambda: len(http.requests) >= 2, what="the first tasks")
    assert one.stop(signal.SIGTERM) == 0
    done = {int(request.headers["event-id"]) for request in http.requests}
    assert {row[0] for row in db.query("select id from public.tasks")} == set(ids) - done


@pytest.mark.parametrize("locks", LOCKS)
def test_a_schedule_is_for_relays_that_do_not_lock_rows(db, relay, http, tasks, tmp_path, locks):
    set_schedule = f"set role {OWNER_ROLE}; select outbox.schedule_set('tick', 'tasks', every => '1 s')"
    with pytest.raises(psycopg2.errors.UndefinedObject):
        db.query(set_schedule)
    db.query(f"grant select, insert, delete on public.tasks to {OWNER_ROLE}; grant usage on sequence public.tasks_id_seq to {OWNER_ROLE};"
             f" set role {OWNER_ROLE}; select outbox.queue_set('tasks', 'public.tasks', priority_column => 'priority')")
    db.query(set_schedule)
    config = tasks.config(web(http), locks=locks)
    if locks == "rows":
        (tmp_path / "pgcourier.yaml").write_text(config)
        done = run_command("run", "-c", str(tmp_path / "pgcourier.yaml"))
        assert done.returncode == 78 and "write locks: advisory" in done.stderr
    else:
        one = relay(config)
        wait_until(lambda: http.requests, what="what the schedule has inserted")
        assert one.stop() == 0


@pytest.mark.parametrize("locks", LOCKS)
def test_workers_that_lease_and_relays_that_lock_rows_are_not_let_in_together(db, http, tasks, tmp_path, locks):
    db.query(f"grant select, delete on public.tasks to {OWNER_ROLE}; select outbox.queue_set('tasks', 'public.tasks', priority_column => 'priority')")
    path = tmp_path / "pgcourier.yaml"
    path.write_text(tasks.config(web(http), locks=locks))
    done = run_command("check-config", "--database", "-c", str(path))
    if locks == "rows":
        assert done.returncode == 78
        assert ("workers take events of this table as queue tasks, and relays lock its rows (locks: rows), which leases do not heed: they would"
                " deliver the same events; write locks: advisory, or forget the workers' queue  fix: select outbox.queue_drop('tasks');") in done.stdout
    else:
        assert "workers take" not in done.stdout and done.returncode == 0
