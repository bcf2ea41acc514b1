"""Nobody who takes waits for a transaction that has taken and goes on."""

from contextlib import contextmanager

import pytest

from tests.support.postgres import WORKER_ROLE
from tests.support.process import wait_until
from tests.support.workers import Worker, add, owner

MOVES = "update outbox.take_mark set due_at = '-infinity'"


@pytest.fixture
def worker(db):
    """It gives up what it would have to wait for."""
    owner(db, "select outbox.queue_set('tasks')")
    one = Worker(db, "tasks")
    one.connection.cursor().execute("set lock_timeout = '2s'")
    yield one
    one.close()


@contextmanager
def open_take(db, count):
    """The ids that somebody has taken whose transaction goes on."""
    connection = db.connect(user=WORKER_ROLE, autocommit=False)
    with connection.cursor() as cursor:
        cursor.execute("select id from outbox.take('tasks', %s)", (count,))
        yield [row[0] for row in cursor.fetchall()]
        connection.commit()
    connection.close()


def test_whose_transaction_has_moved_the_marks_is_in_nobodys_way(db, worker):
    ids = add(db, "a", "b", "c", "d")
    assert len(worker.take()) == 1
    db.query(f"{MOVES}, moved_at = moved_at - interval '20 s'")
    with open_take(db, 1) as taken:
        assert taken == ids[1:2]
        assert [event.id for event in worker.take()] == ids[2:3], "and moves them, too"
        assert [event.id for event in worker.take()] == ids[3:]
    db.query(MOVES)
    worker.take()
    assert db.value("select count(*) from outbox.take_mark where moved_at < clock_timestamp() - interval '15 s'") == 0


def test_whose_transaction_has_found_leases_that_are_over_is_in_nobodys_way(db, worker):
    """It finds up to 100 whose relay is gone, and those in front of which an event was put back, and takes one."""
    ids = add(db, "a", "b", "c")
    db.query("insert into outbox.parked (queue, key, event_id, next_at, token, taken_id, taken_at, lease, backend_pid, backend_start)"
             " select 'tasks', aggregateid, id, now() - interval '1 s', gen_random_uuid(), id, now(), '1 s', 1, '-infinity' from outbox.events")
    with open_take(db, 1) as taken:
        ids += add(db, "free")
        assert [event.id for event in worker.take(10)] == [ids[3]]
    assert sorted(taken + [event.id for event in worker.take(10)]) == ids[:3]


def test_whose_transaction_has_a_key_of_which_more_becomes_due_is_in_nobodys_way(db, worker):
    """Where what is not due is passed, an entry is made for what has become due, when the marks are moved."""
    owner(db, "select outbox.queue_set('tasks', delayed => 'pass')")
    assert worker.take() == []
    ids = add(db, "a", "a", "b", "b")
    db.query("update outbox.events set not_before = clock_timestamp() + interval '10 min' where id in (%s, %s)", (ids[0], ids[3]))
    db.query("update outbox.take_mark set due_at = 'infinity'")
    with open_take(db, 1) as taken:
        assert taken == ids[1:2]
        db.query(f"{MOVES}; update outbox.events set not_before = clock_timestamp()")
        assert [event.id for event in worker.take(10)] == ids[2:3]
        assert worker._value("show lock_timeout") == "2s"
        db.query(MOVES)
        assert worker.take(10) == []
    token = db.value("select token from outbox.parked where taken_id = %s", (ids[1],))
    assert worker.release(token)
    found = []
    wait_until(lambda: found.extend(worker.take()) or found, what="the one that has become due")
    assert found[0].id == ids[0], "it was not forgotten"
