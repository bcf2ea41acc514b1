"""Rows of docs/proof.md about how long a relay stays and how long what is done with is kept, each test named by its row."""

import signal

import pytest

from tests.support.servers import run_command, wait_until

CONFIG = """
database: "{dsn}"
sinks: {{ none: {{ type: discard }} }}
queues: {{ tasks: {{ sink: none{more} }} }}
"""


def publish(db):
    assert run_command("publish", "-d", db.producer_dsn, "-k", "1", "--payload", "{}").returncode == 0


def left(db):
    return db.value("select count(*) from outbox.events")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_p2_a_poll_loop_stops_on_a_signal(db, relay, number):
    one = relay(CONFIG.format(dsn=db.dsn, more=""))
    publish(db)
    wait_until(lambda: left(db) == 0, what="the task to be done")
    assert one.stop(number) == 0 and one.logged("relay.end drained=yes")


def test_p2_a_poll_loop_ends_after_a_time_without_work(db, relay):
    publish(db)
    one = relay(CONFIG.format(dsn=db.dsn, more=""), arguments=["--exit-when-idle", "1s"])
    assert one.wait(60) == 0
    assert left(db) == 0 and one.logged("relay.idle")


def test_t9_p5_old_finished_and_failed_tasks_are_purged(db, relay):
    db.query("insert into outbox.archive (queue, event_id, original, archived_at)"
             " select 'tasks', n, '{}', now() - n * interval '20 days' from generate_series(0, 3) n;"
             "insert into outbox.dead (queue, event_id, reason, attempts, source_table, original, died_at)"
             " select 'tasks', n, 'no', 1, 'outbox.events', '{}', now() - n * interval '20 days' from generate_series(0, 3) n")
    one = relay(CONFIG.format(dsn=db.dsn, more=", after: archive, archive_retention: 30d, dead_retention: 30d"))
    for table in ("archive", "dead"):
        wait_until(lambda table=table: db.query(f"select event_id from outbox.{table} order by 1") == [(0,), (1,)], 60,
                   f"the old rows of {table} to go")
    assert one.stop() == 0
