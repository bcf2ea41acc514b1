"""Rows of docs/proof.md that ask how the queues stand, each test named by its row. More about the
views is in test_answers_sql.py."""

from datetime import timedelta

import pytest

from tests.support.postgres import OWNER_ROLE
from tests.support.servers import wait_until
from tests.support.workers import Worker

CONFIG = """
database: "{dsn}"
sinks: {{ none: {{ type: discard }} }}
queues: {{ tasks: {{ sink: none, after: archive }} }}
"""


@pytest.fixture
def tasks(db):
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('tasks', max_attempts => 1, after => 'archive')")
    db.query("insert into outbox.events (aggregateid, type, created_at) select 'k' || n, 'task', now() - interval '1 hour'"
             " from generate_series(1, 6) n")


def test_r9_t7_hours_have_what_was_delivered_what_failed_and_how_long_it_took(db, tasks, relay):
    worker = Worker(db, "tasks")
    for event in worker.take(2):
        worker.fail(event.token, "no")
    for event in worker.take(1):
        worker.done(event.token)
    worker.close()
    assert relay(CONFIG.format(dsn=db.dsn), until_empty=True).wait() == 0
    hours = db.query("select sum(delivered), sum(failed), min(average_duration), max(p99_duration) from outbox.by_hour"
                     " where queue = 'tasks'")
    ((delivered, failed, average, p99),) = hours
    assert (delivered, failed) == (4, 2)
    assert timedelta(hours=1) <= average <= p99 < timedelta(hours=1, minutes=5)


def test_t7_a_task_has_the_times_of_its_life(db, tasks):
    """Created, begun, updated and ended."""
    worker = Worker(db, "tasks")
    first, second = worker.take(2)
    assert db.value("select count(*) from outbox.workers where since <= now() and expires_at > now()") == 2
    worker.extend(first.token)
    assert db.value("select updated_at > taken_at from outbox.parked where token = %s", (first.token,))
    worker.done(first.token)
    worker.fail(second.token, "no")
    worker.close()
    lives = "select created_at < archived_at from outbox.archive union all select created_at < died_at from outbox.dead"
    assert db.query(lives) == [(True,)] * 2


def test_l6_a_dashboard_in_sql_queued_running_failed_stuck(db, tasks):
    worker = Worker(db, "tasks")
    taken = worker.take(3, lease="1 second")
    worker.fail(taken[0].token, "no such host")
    worker.extend(taken[1].token, "1 hour")
    db.query("select outbox.pause('tasks', 'k6')")
    wait_until(lambda: db.query("select event_id, what from outbox.stuck") == [(taken[2].id, "lease over")], what="a lease to be over")
    assert db.query("select waiting, running, paused, dead, estimated from outbox.overview") == [(5, 1, 1, 1, [])]
    assert db.query("select error, dead from outbox.failures") == [("no such host", 1)]
    assert db.query("select worker, event_id from outbox.workers") == [("worker", taken[1].id)]
    worker.close()
