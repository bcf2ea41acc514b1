"""A queue that is changed while workers are at it: queue_set() and queue_drop()."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg2
import pytest

from tests.support.postgres import OWNER_ROLE, WORKER_ROLE
from tests.support.process import wait_until
from tests.support.workers import Worker, add, left, owner

SETTINGS = ["max_attempts => 5", "retry_base => '2 s'", "after => 'archive'", "delayed => 'pass'", "condition => 'e.id > 0'",
            "priority_column => 'urgency', key_column => 'aggregateid', payload_column => 'payload'",
            "after_column => 'after_id', key_column => 'aggregateid'", "then_queue => 'next'"]


@pytest.fixture
def worker(db):
    owner(db, "select outbox.queue_set('tasks')")
    one = Worker(db, "tasks")
    yield one
    one.close()


def work_until(db, over, errors, done):
    """Takes and ends events; whatever goes wrong is in errors."""
    one = Worker(db, "tasks")
    while not over.is_set():
        try:
            for event in one.take(5, "1 hour"):
                assert one.done(event.token)
                done.append(event.id)
        except Exception as error:  # for the test to judge
            errors.append(error)
    one.close()


def test_workers_notice_nothing_of_a_queue_that_is_set_again_and_again_but_its_end(db, worker):
    db.query("alter table outbox.events add urgency int, add after_id bigint; create index on outbox.events (urgency desc, id);"
             f" create table public.next (id bigserial primary key, payload jsonb); grant select, insert, delete on public.next to {OWNER_ROLE};"
             f" grant usage on sequence public.next_id_seq to {OWNER_ROLE}; insert into outbox.events (aggregateid, payload) select 'k' || n % 90, '{{}}' from generate_series(1, 3000) n")
    owner(db, "select outbox.queue_set('next', 'public.next', payload_column => 'payload')")
    over, errors, done = threading.Event(), [], []
    with ThreadPoolExecutor(4) as pool, closing(db.connect()) as connection, connection.cursor() as cursor:
        workers = [pool.submit(work_until, db, over, errors, done) for _ in range(4)]
        try:
            cursor.execute(f"set role {OWNER_ROLE}; set client_min_messages = warning; set statement_timeout = '30 s'")
            for n in range(48):
                name = "'next', 'public.next', payload_column => 'payload'" if n % 6 == 5 else f"'tasks', {SETTINGS[n % len(SETTINGS)]}"
                cursor.execute(f"select outbox.queue_set({name})")
            wait_until(lambda: not left(db) or errors, 60, "the table to be empty")
            seen = list(errors)
            cursor.execute("select outbox.queue_drop('tasks')")
            wait_until(lambda: len(errors) > len(seen) + 8, what="workers to find no queue")
        finally:
            over.set()
    assert [str(error) for error in seen] == [] and [one.result() for one in workers] == [None] * 4
    assert sorted(done) == list(range(1, 3001))
    assert {type(error) for error in errors} == {psycopg2.errors.UndefinedObject} and all("there is no queue" in str(error) for error in errors)
    owner(db, "select outbox.queue_set('next', 'public.next', payload_column => 'payload')")
    owner(db, "select outbox.queue_set('next', 'public.next', payload_column => 'payload')")
    assert db.value("select count(distinct substring(proname from '^queue_[0-9]+')) from pg_proc where proname ~ '^queue_[0-9]'") == 2, "those before the last are gone"


def test_a_queue_that_has_schedules_is_not_dropped(db, worker):
    for name in "poll", "it''s":
        owner(db, f"select outbox.schedule_set('{name}', 'tasks', every => '1 day')")
    there = "select number from outbox.queue where name = 'tasks'"
    before = db.query(there)
    with pytest.raises(psycopg2.errors.DependentObjectsStillExist, match="queue_drop: schedules put events into queue 'tasks': .*'poll'") as refused:
        owner(db, "select outbox.queue_drop('tasks')")
    assert refused.value.diag.message_hint.endswith("drop them first: select outbox.schedule_drop('it''s'), outbox.schedule_drop('poll');")
    assert db.query(there) == before and worker.take() == []
    owner(db, refused.value.diag.message_hint.split("first: ")[1] + " select outbox.queue_drop('tasks')")
    assert db.query(there) == []


def test_no_schedule_is_set_while_its_queue_is_dropped(db, worker):
    """The drop has looked for schedules already, and is not committed."""
    with closing(db.connect(autocommit=False)) as drops, drops.cursor() as cursor, ThreadPoolExecutor(1) as pool:
        cursor.execute(f"set role {OWNER_ROLE}; select outbox.queue_drop('tasks')")
        late = pool.submit(owner, db, "select outbox.schedule_set('poll', 'tasks', every => '1 day')")
        try:
            wait_until(lambda: late.done() or db.value("select exists (select from pg_locks where not granted)"), what="it to wait for the drop")
            assert not late.done()
        finally:
            drops.commit()
        with pytest.raises(psycopg2.errors.UndefinedObject, match="schedule_set: there is no queue"):
            late.result()
    assert db.query("select name from outbox.schedule") == []


def test_a_drop_waits_for_a_transaction_that_goes_on_to_move_the_marks(db, worker):
    ids = add(db, "a", "b", "c")
    due = "update outbox.take_mark set due_at = %s"
    take = "select id from outbox.take('tasks', 1)"
    assert worker.take()[0].id == ids[0]
    db.query(due, ("infinity",))
    with closing(db.connect(user=WORKER_ROLE, autocommit=False)) as other, other.cursor() as cursor, ThreadPoolExecutor(1) as pool:
        cursor.execute(take)
        assert cursor.fetchone() == (ids[1],)
        drop = pool.submit(owner, db, "select outbox.queue_drop('tasks')")
        try:
            wait_until(lambda: drop.done() or db.value("select exists (select from pg_locks where not granted and locktype = 'advisory')"),
                       what="it to wait for the worker")
            db.query(due, ("-infinity",))
            cursor.execute(take)
            assert cursor.fetchone() == (ids[2],)
        finally:
            other.commit()
        drop.result()
    assert db.query("select name from outbox.queue") == []


def test_a_queue_is_set_while_a_worker_has_a_transaction_open_but_not_moved_to_another_table(db, worker):
    db.query("create table public.other (id bigserial primary key, k text); create index on public.other (k, id);"
             f" grant select, delete on public.other to {OWNER_ROLE}; insert into public.other (k) values ('o')")
    ids = add(db, "a", "b")
    move = "select outbox.queue_set('tasks', 'public.other', key_column => 'k')"
    with closing(db.connect(user=WORKER_ROLE, autocommit=False)) as other, other.cursor() as cursor:
        cursor.execute("select token from outbox.take('tasks', 1)")
        (token,) = cursor.fetchone()
        for n in range(3):
            owner(db, f"set lock_timeout = '2 s'; select outbox.queue_set('tasks', max_attempts => {n + 3})")
        with pytest.raises(psycopg2.errors.LockNotAvailable, match="queue_set: transactions that have called take.*go on for too long") as caught:
            owner(db, "set lock_timeout = '100 ms'; " + move)
        assert "pg_stat_activity" in caught.value.diag.message_hint
        with pytest.raises(psycopg2.errors.LockNotAvailable, match="queue_drop"):
            owner(db, "set lock_timeout = '100 ms'; select outbox.queue_drop('tasks')")
        cursor.execute("select outbox.done(%s)", (token,))
        assert cursor.fetchone() == (True,)
        cursor.execute("select id from outbox.take('tasks', 1)")
        assert cursor.fetchone() == (ids[1],)
        other.commit()
    with pytest.raises(psycopg2.errors.ObjectInUse):
        owner(db, move)
    db.query("update outbox.parked set next_at = clock_timestamp()")
    owner(db, move)
    found = []
    wait_until(lambda: found.extend(worker.take()) or found, what="what the other table has")
    assert (found[0].id, found[0].key) == (1, "o") and left(db) == [ids[1]]


def test_a_call_that_began_before_a_queue_is_set_goes_on_as_it_was(db, worker):
    """It waits for no owner whose transaction goes on, and what it uses is there until it is done."""
    add(db, *[f"k{n}" for n in range(8)])
    with closing(db.connect(autocommit=False)) as connection, connection.cursor() as cursor:
        cursor.execute(f"set role {OWNER_ROLE}; select outbox.queue_set('tasks', max_attempts => 3)")
        cursor.execute("select outbox.queue_set('tasks', max_attempts => 3, retry_base => '2 s')")
        worker.connection.cursor().execute("set lock_timeout = '2 s'")
        (one, two) = worker.take(2)
        assert worker.done(one.token) and worker.extend(two.token)
        connection.commit()
        cursor.execute(f"set role {OWNER_ROLE}; select outbox.queue_set('tasks', max_attempts => 4)")
        connection.commit()
    assert worker.fail(two.token) and len(worker.take(2)) == 2
    assert db.value("select max_attempts from outbox.queue where name = 'tasks'") == 4


def test_the_marks_of_what_a_queue_was_are_not_those_of_what_it_is(db, worker):
    """A call that begins before the settings are committed moves them after they were set."""
    owner(db, "select outbox.queue_set('tasks', condition => 'e.id > 3')")
    ids = add(db, *"abcdefgh")
    moves = "update outbox.take_mark set due_at = '-infinity'"
    with closing(db.connect(autocommit=False)) as connection, connection.cursor() as cursor:
        db.query(moves)
        assert [event.id for event in worker.take()] == ids[3:4]
        cursor.execute(f"set role {OWNER_ROLE}; select outbox.queue_set('tasks')")
        for n in (4, 5):
            db.query(moves)
            assert [event.id for event in worker.take()] == ids[n:n + 1]
        connection.commit()
    db.query("update outbox.take_mark set due_at = 'infinity'")
    assert [event.id for event in worker.take(3)] == ids[:3]


def test_the_marks_stay_where_the_rows_are_the_same(db, worker):
    db.query(f"create table public.next (id bigserial primary key, payload jsonb); grant select, insert, delete on public.next to {OWNER_ROLE};"
             f" grant usage on sequence public.next_id_seq to {OWNER_ROLE}")
    owner(db, "select outbox.queue_set('next', 'public.next', payload_column => 'payload')")
    owner(db, "select outbox.queue_set('tasks', then_queue => 'next')")
    add(db, *"abcd")
    for _ in range(3):
        db.query("update outbox.take_mark set due_at = '-infinity'")
        worker.take()
    mark = "select low, next_low from outbox.take_mark where queue = 'tasks' order by number desc, moved_at desc limit 1"
    was = db.query(mark)
    assert was[0][0] > 0
    owner(db, "select outbox.queue_set('tasks', then_queue => 'next', max_attempts => 3)")
    owner(db, "select outbox.queue_set('next', 'public.next', payload_column => 'payload')")
    number = "select number from outbox.queue where name = 'tasks'"
    assert db.query(mark) == was and db.value(f"select count(*) from outbox.take_mark where number = ({number})") == 1
    owner(db, "select outbox.queue_set('tasks', then_queue => 'next', condition => 'true')")
    worker.take()
    assert db.value(f"select low < 0 from outbox.take_mark where number = ({number})")
    owner(db, "select outbox.queue_set('tasks', then_queue => 'next', condition => 'true')")
    assert db.value("select count(distinct number) from outbox.take_mark where queue = 'tasks'") == 2, "those before the last are gone"


TABLES = f"""
    create table public.base (id bigint primary key, k text); create table public.other (id bigint primary key, k text);
    create table public.child (primary key (id)) inherits (public.base); create table public.grandchild (primary key (id)) inherits (public.child, public.other);
    create table public.parts (id bigint primary key, k text) partition by range (id);
    create table public.low partition of public.parts for values from (0) to (1000);
    create table public.high partition of public.parts for values from (1000) to (2000);
    grant select, delete on public.base, public.child, public.grandchild, public.other, public.parts, public.low, public.high to {OWNER_ROLE}"""


@pytest.mark.parametrize("one, two", [("base", "child"), ("grandchild", "base"), ("child", "other"), ("parts", "low"), ("high", "parts"), ("low", "low")])
def test_two_queues_cannot_have_the_same_rows(db, one, two):
    db.query(TABLES)
    owner(db, f"select outbox.queue_set('one', 'public.{one}')")
    with pytest.raises(psycopg2.errors.ObjectNotInPrerequisiteState, match="is the table of queue 'one', too"):
        owner(db, f"select outbox.queue_set('two', 'public.{two}')")
    owner(db, f"select outbox.queue_set('one', 'public.{one}', condition => 'k = ''a''', lock_class => 5);"
              f" select outbox.queue_set('two', 'public.{two}', condition => 'k = ''b''', lock_class => 5)")


@pytest.mark.parametrize("one, two", [("low", "high"), ("base", "other"), ("base", "parts")])
def test_two_queues_may_have_tables_that_share_no_row(db, one, two):
    db.query(TABLES)
    if two == "other":
        db.query("drop table public.grandchild")
    owner(db, f"select outbox.queue_set('one', 'public.{one}'); select outbox.queue_set('two', 'public.{two}')")
