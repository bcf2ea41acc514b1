"""Rows of docs/proof.md that workers pulling by SQL keep, each test named by its row."""

import pytest

from tests.support.history import Fault
from tests.support.noted import Noted
from tests.support.postgres import OWNER_ROLE
from tests.support.servers import wait_until
from tests.support.workers import Worker

PARKED = "select attempts, last_error, next_at - updated_at, token from outbox.parked where queue = 'tasks'"


def over(db):
    """The terms of all leases, and all waits, are over now."""
    db.query("update outbox.parked set next_at = clock_timestamp() where next_at <> 'infinity'")


@pytest.fixture
def tasks(db):
    """tasks(*keys) inserts an event of each key and returns their ids."""
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('tasks', retry_base => '1 day', retry_max => '7 days', max_attempts => 3)")

    def insert(*keys):
        return [db.value("insert into outbox.events (aggregateid, type, payload) values (%s, 'task', '{\"n\": 1}') returning id", (key,))
                for key in keys]

    return insert


@pytest.fixture
def worker(db):
    """worker(name) -> a Worker of the queue "tasks"."""
    started = []

    def start(name="worker", queue="tasks"):
        started.append(Worker(db, queue, name))
        return started[-1]

    start.started = started
    yield start
    for one in started:
        one.close()


@pytest.fixture
def judge(db, worker):
    noted = Noted(db)
    return lambda *faults, **options: noted.check([receipt for one in worker.started for receipt in one.receipts], faults, **options)


def left(db):
    return [row[0] for row in db.query("select id from outbox.events order by id")]


def test_q2_exactly_one_worker_has_a_task_and_the_view_says_who_and_since_when(db, tasks, worker):
    ids = tasks("a", "a", None, None)
    one, other = worker("host-1"), worker("host-2")
    taken = one.take(10)
    assert [(event.id, event.key, event.attempt) for event in taken] == [(ids[0], "a", 1), (ids[2], None, 1), (ids[3], None, 1)]
    assert other.take(10) == []
    leases = db.query("select event_id, key, worker, clock_timestamp() - taken_at < '1 min', expires_at > clock_timestamp(), over"
                      " from outbox.status_leases order by 1")
    assert leases == [(event.id, event.key, "host-1", True, True, False) for event in taken]


def test_q2_workers_at_the_same_moment_never_have_the_same_task(db, tasks, worker):
    ids = tasks(*range(20))
    holding = db.connect(autocommit=False)  # its take() is not committed yet: the locks alone keep the others away
    with holding.cursor() as cursor:
        cursor.execute("select id from outbox.take('tasks', 8)")
        first = [row[0] for row in cursor.fetchall()]
    second = [event.id for event in worker().take(20)]
    assert first == ids[:8] and second == ids[8:]
    holding.rollback()
    holding.close()
    third = []
    wait_until(lambda: third.extend(event.id for event in worker().take(20)) or len(third) == 8, what="what was given back")
    assert sorted(third) == ids[:8]


def test_q3_a_task_is_taken_again_after_its_lease(db, tasks, worker, judge):
    ids = tasks("a", None)
    slow, quick = worker("slow"), worker("quick")
    lost = slow.take(2, lease="100 ms")
    again = []
    wait_until(lambda: again.extend(quick.take(2)) or len(again) == 2, what="the lease to be over")
    assert sorted((event.id, event.attempt) for event in again) == [(ids[0], 2), (ids[1], 2)]
    assert [slow.done(event.token) for event in lost] == [False, False] and left(db) == ids
    assert [quick.done(event.token) for event in again] == [True, True] and left(db) == []
    assert db.value("select verdicts from outbox.status_late_verdicts") == 2
    judge(Fault("the leases ran out", in_flight=2))


def test_q3_a_verdict_that_comes_late_counts_while_nobody_has_taken_over(db, tasks, worker):
    tasks("a")
    (event,) = worker().take()
    over(db)
    assert worker().done(event.token) and left(db) == []


def test_q4_a_done_task_is_deleted_and_the_next_of_its_key_is_free(db, tasks, worker, judge):
    ids = tasks("a", "a")
    one = worker()
    (event,) = one.take(5)
    assert one.done(event.token) and left(db) == [ids[1]]
    (event,) = one.take(5)
    assert event.id == ids[1] and one.done(event.token)
    assert left(db) == [] and db.query("select * from outbox.parked") == []
    assert not one.done(event.token)
    judge()


def test_q4_a_done_task_is_archived_in_the_same_transaction(db, tasks, worker):
    (event_id,) = tasks("a")
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('tasks', after => 'archive')")
    (event,) = worker().take()
    connection = db.connect(autocommit=False)
    connection.cursor().execute("select outbox.done(%s)", (event.token,))
    connection.rollback()
    assert left(db) == [event_id] and db.query("select * from outbox.archive") == []
    assert worker().done(event.token) and left(db) == []
    assert db.query("select queue, event_id, key, original ->> 'type' from outbox.archive") == [("tasks", event_id, "a", "task")]


def test_t4_a_failed_task_waits_longer_each_time_and_keeps_its_error(db, tasks, worker, judge):
    tasks("a", None)
    one = worker()
    for attempt, days in ((1, 1), (2, 2)):
        for event in one.take(5):
            assert event.attempt == attempt and one.fail(event.token, f"no {attempt}")
        for attempts, error, wait, token in db.query(PARKED):
            assert (attempts, error, token) == (attempt, f"no {attempt}", None) and 0 < wait.total_seconds() <= days * 86400 + 1
        assert one.take(5) == []
        over(db)
    assert [(event.attempt, one.fail(event.token, "x" * 5000)) for event in one.take(5)] == [(3, True)] * 2
    assert left(db) == [] and db.query(PARKED) == []
    assert db.query("select attempts, length(reason), type, source_table from outbox.dead") == [(3, 1000, "task", "outbox.events")] * 2
    judge(attempts=3)


def test_t4_a_fatal_error_does_not_come_back(db, tasks, worker, judge):
    ids = tasks("a", "a")
    one = worker()
    assert one.fail(one.take()[0].token, "never", fatal=True)
    assert db.query("select event_id, reason, attempts from outbox.dead") == [(ids[0], "never", 1)]
    (event,) = one.take()
    assert event.id == ids[1] and one.done(event.token)  # later ones of the key go on
    judge()


def test_t8_a_task_whose_workers_die_comes_back_and_not_for_ever(db, tasks, worker):
    tasks("a")
    for attempt in (1, 2, 3):
        assert [event.attempt for event in worker(f"victim-{attempt}").take()] == [attempt]
        over(db)
        assert db.query("select worker, over from outbox.status_leases") == [(f"victim-{attempt}", True)]
    assert worker().take() == [] and left(db) == []
    assert db.query("select attempts, reason from outbox.dead") == [(3, "the lease of victim-3 ran out")]


def test_t3_workers_take_the_most_urgent_tasks_first_and_their_priority_may_change(db, tasks, worker):
    db.psql("alter table outbox.events add priority int default 0; create index on outbox.events (priority desc, id)")
    db.query("insert into outbox.events (aggregateid) select n from generate_series(1, 5000) n")
    urgent = tasks("urgent", "more urgent")
    db.query("update outbox.events set priority = case when id = any (%s) then id else 0 end", (urgent,))
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('tasks', priority_column => 'priority')")
    one = worker()
    assert [event.id for event in one.take(10)][:2] == urgent[::-1]
    raised = db.value("update outbox.events set priority = 1 where aggregateid = '4990' returning id")
    taken = []
    wait_until(lambda: taken.extend(one.take(1)) or raised in [event.id for event in taken], what="the one that became urgent")
    assert len(taken) < 4000


def test_l1_a_worker_takes_as_many_as_it_has_room_for_oldest_first(db, tasks, worker):
    ids = tasks(*[key for _ in range(3) for key in range(30)])
    one = worker()
    assert [event.id for event in one.take(7)] == ids[:7]
    assert [event.id for event in one.take(40)] == ids[7:30]
    assert one.take(40) == []  # every key is taken


def test_l2_a_heartbeat_keeps_a_task_and_a_dead_workers_tasks_are_taken_over(db, tasks, worker):
    ids = tasks("a", "b")
    living, heir = worker("living"), worker("heir")
    kept, lost = living.take(2, lease="10 s")
    over(db)
    assert living.extend(kept.token) and heir.take(5)[0].id == lost.id == ids[1]
    assert not living.extend(lost.token)
    assert db.value("select expires_at - clock_timestamp() > '8 s' from outbox.status_leases where event_id = %s", (ids[0],))
    assert living.extend(kept.token, "1 hour")
    assert db.value("select expires_at - clock_timestamp() > '59 min' from outbox.status_leases where event_id = %s", (ids[0],))


def test_l5_broken_tasks_are_set_aside_by_the_rule_of_the_queue(db, tasks, worker):
    ids = tasks("a", "a")
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('tasks', max_attempts => 1, on_exhausted => 'park')")
    one = worker()
    assert one.fail(one.take()[0].token, "broken")
    over(db)
    assert one.take() == [] and left(db) == ids
    assert db.query("select key, event_id from outbox.status_closed") == [("a", ids[0])]
