"""Rows of docs/proof.md about tasks that a relay delivers in no order, each test named by its row."""

import re
import threading
import time

import pytest

from tests.support.http_receiver import HANG, Reply
from tests.support.noted import Noted
from tests.support.servers import wait_until
from tests.support.targets import http_receipts
from tests.support.tasks import LOCKS, Tasks

DELAYED, TURNS = 100_000, 60


@pytest.fixture
def tasks(db):
    return Tasks(db)


def sink(http, **settings):
    return ", ".join(["type: http", f'url: "{http.url}"', *(f"{name}: {value}" for name, value in settings.items())])


def ids(http):
    return [int(request.headers["event-id"]) for request in http.requests]


def test_t1_tasks_are_taken_with_for_update_skip_locked(relay, http, tasks, db):
    """So a worker that somebody wrote by hand may take from the same table."""
    taken, *others = tasks.add(*[0] * 20)
    by_hand = db.connect(autocommit=False)
    with by_hand.cursor() as cursor:
        cursor.execute("select id from public.tasks order by id limit 1 for update skip locked")
        assert cursor.fetchall() == [(taken,)]
        http.rule(lambda request: request.headers["event-id"] == str(others[-1]), Reply(action=HANG))
        one = relay(tasks.config(sink(http, max_in_flight=1)))
        wait_until(lambda: len(http.requests) == len(others), what="the others to be on their way, the last one still")
        cursor.execute("select id from public.tasks order by id for update skip locked")
        assert cursor.fetchall() == [(taken,)]
        http.release()
        cursor.execute("delete from public.tasks where id = %s", (taken,))
    by_hand.commit()
    by_hand.close()
    wait_until(lambda: tasks.left() == 0, what="the table to be empty")
    assert one.stop() == 0 and sorted(ids(http)) == others


@pytest.mark.parametrize("locks", LOCKS)
def test_t3_the_most_urgent_tasks_go_first_and_their_priority_may_change(relay, http, tasks, db, locks):
    noted = Noted(db, "public.tasks", key=None)
    http.respond = lambda _: Reply(delay_s=0.02)
    usual = tasks.add(*[0] * 300)
    urgent = tasks.add(*[5] * 20)
    one = relay(tasks.config(sink(http, max_in_flight=4), locks=locks, keys_per_claim=8))
    wait_until(lambda: len(http.requests) >= 60, what="some to be delivered")
    assert set(urgent) < set(ids(http)[:40])
    raised = usual[250]
    assert raised not in ids(http)
    before = len(http.requests)
    db.query("update public.tasks set priority = 9 where id = %s", (raised,))
    wait_until(lambda: raised in ids(http), what="the one that became urgent")
    assert ids(http).index(raised) < before + 100
    assert tasks.left() > 100, "too fast to mean anything"
    wait_until(lambda: tasks.left() == 0, 60, "the table to be empty")
    assert one.stop() == 0 and sorted(ids(http)) == usual + urgent
    noted.check(http_receipts(http))


@pytest.mark.parametrize("priority", [True, False], ids=["priority", "by_id"])
def test_t6_new_tasks_do_not_read_the_delayed_ones_again_and_again(relay, http, tasks, db, priority):
    """100,000 tasks wait; each is the most urgent there is."""
    db.query("insert into public.tasks (priority) select 9 from generate_series(1, %s);"
             "insert into outbox.parked (queue, key, event_id, keyless, next_at)"
             " select 'tasks', '', id, true, now() + interval '1 day' from public.tasks; analyze public.tasks", (DELAYED,))
    one = relay(tasks.config(sink(http), priority=priority))
    for turn in range(1, TURNS + 1):
        tasks.fill(20)
        wait_until(lambda turn=turn: len(http.requests) == turn * 20, 60, "new tasks to be delivered")
    db.query("update outbox.parked set next_at = now() where queue = 'tasks' and keyless and event_id <= 1000")
    wait_until(lambda: len(http.requests) == TURNS * 20 + 1000, 60, "what is due to be delivered")
    assert one.stop() == 0
    wait_until(lambda: db.value("select count(*) = 0 from pg_stat_activity where application_name like 'pgcourier%'"),
               what="the relay's sessions to end, which is when their counts are complete")
    read = int(db.value("select sum(idx_tup_read) from pg_stat_user_indexes where relid in ('public.tasks'::regclass, 'outbox.parked'::regclass)"))
    assert read < 20 * DELAYED and tasks.left() == DELAYED - 1000


@pytest.mark.parametrize("locks", LOCKS)
def test_l1_a_claim_takes_as_many_as_there_is_room_for(relay, http, tasks, db, locks):
    http.respond = lambda _: Reply(action=HANG)
    tasks.add(*range(100))
    one = relay(tasks.config(sink(http, max_in_flight=7, timeout="300s"), locks=locks, connections=1))
    wait_until(lambda: http.in_flight == 7, what="as many as may be in flight")
    free = db.connect(autocommit=False)
    with free.cursor() as cursor:
        if locks == "rows":
            cursor.execute("select count(*) from (select from public.tasks for update skip locked) as t")
            (held,) = cursor.fetchone()
            held = 100 - held
        else:
            cursor.execute("select count(*) from pg_locks where locktype = 'advisory' and objsubid = 2 and database = (select oid from pg_database"
                           " where datname = current_database())")
            (held,) = cursor.fetchone()
    free.close()
    assert held == 7
    one.kill()


@pytest.mark.parametrize("locks", LOCKS)
def test_q1_a_task_is_one_insert_of_a_jsonb_payload(relay, http, tasks, db, locks):
    db.query("insert into public.tasks (payload) values ('{\"send\": \"a letter\"}')")
    one = relay(tasks.config(sink(http), locks=locks))
    wait_until(lambda: tasks.left() == 0, what="the task to be done")
    assert one.stop() == 0 and [request.json() for request in http.requests] == [{"send": "a letter"}]


@pytest.mark.alone
@pytest.mark.parametrize("ordering", ["unordered", "lease"])
def test_q5_2_000_tasks_a_second_beside_other_work(relay, tasks, db, ordering):
    """Other work: two sessions that update a table as fast as they can. What they lose by it is question 17 of bench/."""
    db.query("create table public.work (id int primary key, n bigint); insert into public.work select n, 0 from generate_series(1, 1000) n")
    done, updates = threading.Event(), [0, 0]

    def work(number, connection):
        with connection.cursor() as cursor:
            while not done.is_set():
                cursor.execute("update public.work set n = n + 1 where id = 1 + (random() * 999)::int")
                updates[number] += 1

    workers = [threading.Thread(target=work, args=(number, db.connect())) for number in range(2)]
    one = relay(tasks.config("type: discard").replace("ordering: unordered", f"ordering: {ordering}").replace(", priority: priority", ""))
    for each in workers:
        each.start()
    try:
        begun = time.monotonic()
        for tenth in range(30):
            tasks.fill(200)
            time.sleep(max(0.0, begun + (tenth + 1) / 10 - time.monotonic()))
        wait_until(lambda: tasks.left() == 0, 10, "the relay to keep up")
    finally:
        done.set()
        for each in workers:
            each.join()
    assert one.stop() == 0
    assert re.search(r" delivered=(\d+)", one.logged("queue.stats")[-1]).group(1) == "6000" and min(updates) > 100
