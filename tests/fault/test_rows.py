"""Others work on the same rows and locks, or the database has no room or no right for what is to be written."""

import os
import subprocess
import tempfile

import psycopg2
import pytest

from tests.conftest import migrate
from tests.support import servers
from tests.support.fault_run import FaultRun
from tests.support.process import REPO, unprivileged_user
from tests.support.servers import Reply, wait_until
from tests.support.shop import Shop
from tests.support.targets import FileTarget, HttpTarget

LOCK_CLASS = 4711


@pytest.fixture
def run(relay, db, tmp_path):
    return FaultRun(relay, Shop(db), FileTarget(tmp_path / "events.jsonl"))


# ---- locks ----

def test_keys_whose_locks_collide_take_turns(run):
    """Two hundred keys with four locks between them: hashint8() folds the upper half of a key into the lower."""
    keys = [(upper << 32) | (lower ^ upper) for lower in range(4) for upper in range(50)]
    assert run.db.value("select count(distinct hashint8(n)) from unnest(%s::bigint[]) as n", (keys,)) == 4
    for _ in range(5):
        run.shop.insert(keys)
    for _ in range(3):
        run.start(keys_per_claim=4, max_events_per_key=2)
    assert run.finish() == 0


def test_a_lock_of_the_applications_makes_one_key_wait(run):
    with run.db.connect() as connection, connection.cursor() as cursor:
        cursor.execute("select pg_advisory_lock(%s, hashint8(7))", (LOCK_CLASS,))
        run.add(500, keys=50)
        run.start(lock_class=LOCK_CLASS)
        wait_until(lambda: run.shop.left() == 10, 60, "the other keys to be delivered")
        assert run.db.query("select distinct order_id from public.events") == [(7,)]
        cursor.execute("select pg_advisory_unlock(%s, hashint8(7))", (LOCK_CLASS,))
    connection.close()
    assert run.finish() == 0


def test_a_savepoint_lets_go_of_what_was_locked_behind_it_and_no_key_is(run):
    """A settlement stands behind one: that rolls back to it, and the keys, locked before it, stay locked."""
    with run.db.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("select pg_advisory_xact_lock(1, 1); savepoint s; select pg_advisory_xact_lock(1, 2)")
        cursor.execute("rollback to savepoint s")
        cursor.execute("select objid from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()")
        assert cursor.fetchall() == [(1,)]
    connection.close()
    found = subprocess.run(["grep", "-rliE", "savepoint|plpgsql.*exception", "sql/claim", "ordering"],
                           cwd=REPO, capture_output=True, text=True, check=False)
    assert found.stdout == ""


# ---- rows ----

def test_a_row_that_somebody_holds_keeps_nothing_from_being_settled_in_the_end(run):
    """The second of a key's three; what was delivered is settled when the row is free, and not delivered again."""
    events = run.add(60, keys=20)
    with run.db.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("select from public.events where id = %s for update", (events[25].id,))
        run.start(connections=1)
        run.wait_for(60)
        run.wait_for_log("lock_timeout")
        connection.rollback()
    connection.close()
    assert run.finish() == 0
    run.no_failures()


# ---- no right, no room ----

def test_a_dead_letter_that_cannot_be_written_is_not_lost(relay, db, http):
    run = FaultRun(relay, Shop(db), HttpTarget(http))
    role = f"relay_{db.name}"
    db.psql(f"create role {role} login; grant outbox_relay to {role}; select outbox.grant_relay('public.events')")
    try:
        run.target.refused_keys, run.target.refusal = {"3"}, Reply(422)
        one = run.start(database=db.server.dsn(db.name, role))
        wait_until(lambda: one.logged("relay.start"), 30, "the relay to start")
        db.query("revoke insert on outbox.dead from outbox_relay")
        run.add(100, keys=10)
        run.wait_for_log("SQLSTATE 42501")
        assert db.value("select count(*) from public.events where order_id = 3") == 10
        db.query("grant insert on outbox.dead to outbox_relay")
        run.finish()
        assert db.value("select count(*) from outbox.dead") == 10
    finally:
        for one in run.relays:
            one.kill()
        db.psql(f"drop owned by {role}; drop role {role}")


@pytest.fixture
def small_disk():
    """A folder of PostgreSQL's with 2 MB; others must be able to pass through to it."""
    folder = tempfile.mkdtemp()
    os.chmod(folder, 0o755)
    user = unprivileged_user()
    options = f"size=2m,mode=700{f',uid={user}' if user else ''}"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], capture_output=True, check=False).returncode:
        os.rmdir(folder)
        pytest.skip("needs to mount a file system")
    yield folder
    subprocess.run(["umount", "-l", folder], check=False)
    os.rmdir(folder)


def test_an_archive_without_room_keeps_the_events(relay, tmp_path, small_disk):
    """They were delivered, stay in the table, and are archived when there is room, without a second delivery."""
    with servers.Postgres() as server:
        db = server.create_database()
        migrate(db)
        run = FaultRun(relay, Shop(db), FileTarget(tmp_path / "events.jsonl"))
        db.query(f"create tablespace small location '{small_disk}'")
        for (partition,) in db.query("select relid::regclass::text from pg_partition_tree('outbox.archive') where isleaf"):
            db.query(f"alter table {partition} set tablespace small")
        db.query("create table public.filler (t text) tablespace small")
        with pytest.raises(psycopg2.OperationalError, match="No space left"):
            while True:
                db.query("insert into public.filler select repeat('x', 900) from generate_series(1, 8)")
        run.add(2000, keys=50)
        run.start(after="archive")
        run.wait_for_log("SQLSTATE 53100")
        assert run.shop.left() + db.value("select count(*) from outbox.archive") == 2000
        db.query("drop table public.filler")
        run.wait_until_empty()
        assert run.finish() == 0
        assert db.value("select count(*) from outbox.archive") == 2000
