"""What is done with is kept for as long as every queue wants it, and then goes in small steps that nobody waits for."""

import os
import time
from datetime import datetime, timedelta, timezone

import psycopg2
import pytest

from tests.support.process import REPO
from tests.support.servers import wait_until

CONFIG = """
database: "{dsn}"
sinks: {{ none: {{ type: discard }} }}
queues: {{ orders: {{ sink: none, after: archive, archive_retention: 3d, dead_retention: 1h }} }}
"""
FOR_EVER = None
pytestmark = pytest.mark.usefixtures("one_day")
DAYS = range(1, 8)  # so many days ago
EXPIRE = "select removed, extract(epoch from again)::int from outbox.archive_expire(%s, %s, true)"


def day(ago):
    return (datetime.now(timezone.utc) - timedelta(days=ago)).strftime("%Y%m%d")


@pytest.fixture
def old_days(db):
    """An archive that was written to every day of the last week, and has rows of older days in no day's partition."""
    owner = db.value("select relowner::regrole from pg_class where oid = 'outbox.archive'::regclass")
    for ago in DAYS:
        db.query(f"set role {owner}; create table outbox.archive_{day(ago)} partition of outbox.archive"
                 f" for values from ('{day(ago)} 00:00+00') to ('{day(ago - 1)} 00:00+00')")
    db.query("insert into outbox.archive (queue, event_id, original, archived_at)"
             " select q, n, '{}', now() - n * interval '1 day' from generate_series(0, 40) n, unnest(array['orders', 'mails']) q")


def days_left(db):
    """How many days ago: of the partitions in the past."""
    names = {name for (name,) in db.query("select relname from pg_class where relname ~ '^archive_[0-9]{8}' and relkind = 'r'")}
    return [ago for ago in DAYS if f"archive_{day(ago)}" in names] + sorted(name for name in names if name.endswith("_expired"))


def ages(db):
    return [age for (age,) in db.query("select distinct event_id from outbox.archive order by 1")]


def expire_all(db, queue, keep):
    """All steps; returns what was removed."""
    removed = []
    for _ in range(50):
        ((what, again),) = db.query(EXPIRE, (queue, keep))
        removed += [what] if what else []
        if again is None:
            return removed
    raise AssertionError(f"there is no end: {removed}")


def test_whole_days_go_and_the_rows_beside_them(db, old_days):
    removed = expire_all(db, "orders", "3 days")
    assert days_left(db) == [1, 2, 3], "a row of three days ago is there until the day is over"
    assert ages(db) == [0, 1, 2, 3]
    assert sorted(removed) == sorted(["rows of outbox.archive_default"] + [f"outbox.archive_{day(ago)}" for ago in (4, 5, 6, 7)])


def test_a_day_stays_until_every_queue_lets_it_go(db, old_days):
    assert expire_all(db, "mails", FOR_EVER) == []
    assert expire_all(db, "orders", "3 days") == [] and len(ages(db)) == 41
    expire_all(db, "mails", "5 days")
    assert days_left(db) == [1, 2, 3, 4, 5] and ages(db) == [0, 1, 2, 3, 4, 5]
    db.query("delete from outbox.archive_retention where queue = 'mails'")
    expire_all(db, "orders", "3 days")
    assert days_left(db) == [1, 2, 3]


def test_a_queue_of_workers_that_archives_has_a_say(db, old_days):
    db.query("select outbox.queue_set('tasks', after => 'archive')")
    assert expire_all(db, "orders", "3 days") == []
    expire_all(db, "tasks", "2 days")
    expire_all(db, "orders", "3 days")
    assert days_left(db) == [1, 2, 3]


def test_what_somebody_else_has_detached_or_attached_is_left_alone(db, old_days):
    db.query(f"alter table outbox.archive detach partition outbox.archive_{day(7)};"
             "create table outbox.archive_2020 partition of outbox.archive for values from ('2020-01-01') to ('2021-01-01')")
    expire_all(db, "orders", "3 days")
    assert days_left(db) == [1, 2, 3, 7]
    assert db.value("select to_regclass('outbox.archive_2020') is not null")


@pytest.mark.parametrize("queue, keep", [("orders", "59 minutes"), ("orders", "-1 day"), (None, "3 days"), ("", "3 days")])
def test_bad_input_is_refused_with_a_hint_and_changes_nothing(db, old_days, queue, keep):
    with pytest.raises(psycopg2.errors.InvalidParameterValue) as refused:
        db.query(EXPIRE, (queue, keep))
    assert refused.value.diag.message_hint
    assert len(ages(db)) == 41 and db.value("select count(*) from outbox.archive_retention") == 0


def test_nobody_waits_long_behind_a_day_that_cannot_go_yet(db, old_days):
    """A report over the archive holds a lock that keeps the day; settlements queue up behind us for a tenth of a second."""
    report = db.connect(autocommit=False)
    report.cursor().execute("select count(*) from outbox.archive")
    db.query("delete from outbox.archive_default")
    before = time.monotonic()
    assert db.query(EXPIRE, ("orders", "3 days")) == [(None, 60)]
    db.query("insert into outbox.archive (queue, event_id, original) values ('orders', 99, '{}')")
    assert time.monotonic() - before < 5, "a lock_timeout of the session's would be 0, for ever"
    assert days_left(db) == list(DAYS)
    report.close()
    expire_all(db, "orders", "3 days")
    assert days_left(db) == [1, 2, 3]


def test_two_relays_remove_the_right_days_once(db, relay, old_days):
    relays = [relay(CONFIG.format(dsn=db.dsn)) for _ in range(2)]
    wait_until(lambda: days_left(db) == [1, 2, 3] and ages(db) == [0, 1, 2, 3], 90, "the old days to go")
    assert [one.stop() for one in relays] == [0, 0]
    lines = [line for one in relays for line in one.logged("msg=archive.removed queue=orders")]
    removed = sorted(line.split("what=")[1].strip('"') for line in lines)
    assert removed == sorted(["rows of outbox.archive_default"] + [f"outbox.archive_{day(ago)}" for ago in (4, 5, 6, 7)])
    assert not [line for one in relays for line in one.logged("upkeep.failed|claim.failed|settle.failed|side.failed")]


LETTERS = ("insert into outbox.dead (queue, event_id, key, reason, attempts, source_table, original, died_at)"
           " select %s, n, 'k', 'no', 1, 'outbox.events', '{}', now() - %s::interval from generate_series(1, %s) n")
LEFT = "select queue, count(*) from outbox.dead group by 1 order by 1"


def test_dead_letters_that_are_old_enough_are_forgotten(db, relay):
    for row in [("orders", "2 hours", 2300), ("orders", "30 minutes", 5), ("mails", "2 hours", 7)]:
        db.query(LETTERS, row)
    relays = [relay(CONFIG.format(dsn=db.dsn)) for _ in range(2)]
    wait_until(lambda: db.query(LEFT) == [("mails", 7), ("orders", 5)], 60, "the old ones to go")
    assert [one.stop() for one in relays] == [0, 0]
    purged = [int(line.split("events=")[1]) for one in relays for line in one.logged("msg=dead.purged queue=orders")]
    assert sum(purged) <= 2300
    assert sum(int(line.split(" purged=")[1].split()[0]) for one in relays for line in one.logged("queue.stats")[-1:]) == 2300


def test_a_purge_is_bounded_and_one_at_a_time(db):
    with open(os.path.join(REPO, "sql/upkeep/dead_purge.sql")) as file:
        text = "prepare purge as " + file.read().replace(":needed", "false")
    db.query(LETTERS, ("orders", "2 hours", 100))
    one, other = db.connect(autocommit=False), db.connect()
    counts = []
    for connection in (one, other):
        with connection.cursor() as cursor:
            cursor.execute(text)
            cursor.execute("execute purge('orders', 3600000000, 30)")
            counts += cursor.fetchone()
    one.commit()
    assert counts == [30, 0] and db.value("select count(*) from outbox.dead") == 70
    with other.cursor() as cursor:
        cursor.execute("execute purge('orders', 3600000000, 30)")
        assert cursor.fetchone() == (30,)
    one.close()
    other.close()


def test_what_is_not_asked_for_is_kept(db, relay):
    db.query(LETTERS, ("orders", "10 years", 3))
    one = relay(CONFIG.format(dsn=db.dsn).replace(", archive_retention: 3d, dead_retention: 1h", ""))
    wait_until(lambda: db.query("select queue, keep from outbox.archive_retention") == [("orders", None)], what="the word of the queue")
    assert one.stop() == 0 and db.query(LEFT) == [("orders", 3)]
