"""Others work on the same rows and locks, or the database has no room or no right for what is to be written."""

import os
import re
import subprocess
import tempfile
from collections import Counter

import psycopg2
import pytest

from tests.conftest import migrate
from tests.support import servers
from tests.support.fault_run import FaultRun
from tests.support.history import Fault
from tests.support.postgres import RELAY_ROLE
from tests.support.process import unprivileged_user
from tests.support.servers import Reply, wait_until
from tests.support.shop import Shop
from tests.support.statement_log import StatementLog
from tests.support.targets import FileTarget, HttpTarget

LOCK_CLASS = 4711
GUARDED = 165  # an event
GUARD = f"""
create function public.guard() returns trigger language plpgsql as $$ begin
    if old.id = {GUARDED} then raise 'not this one'; end if;
    return old;
end $$;
create trigger guard before delete on public.events for each row execute function public.guard();
"""


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


def test_a_savepoint_lets_go_of_what_was_locked_behind_it(db):
    with db.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("select pg_advisory_xact_lock(1, 1); savepoint s; select pg_advisory_xact_lock(1, 2)")
        cursor.execute("rollback to savepoint s")
        cursor.execute("select objid from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()")
        assert cursor.fetchall() == [(1,)]
    connection.close()


LOCKS = re.compile(r"pg_(try_)?advisory_(xact_)?lock|\bfor (no key )?(update|share)\b", re.IGNORECASE)
AHEAD, BEHIND = "locked ahead of a savepoint, or without one", "locked behind one"


def told(statements):
    """What one session did, counted."""
    count, behind = Counter(), False
    for text in statements:
        word = re.match(r"(savepoint|rollback to|release|commit|rollback)\b", text)
        if word:
            count[word[0]] += 1
            behind = word[0] in ("savepoint", "rollback to")  # that keeps it
        elif LOCKS.search(text):
            count[BEHIND if behind else AHEAD] += 1
    return count


@pytest.mark.parametrize("ordering", ["per_key", "unordered", "lease"])
def test_a_relay_locks_no_key_behind_a_savepoint(run, ordering):
    """Its settlements stand behind one, to which they are rolled back when a row cannot be deleted; those of leases need none."""
    db = run.db
    db.psql(GUARD)
    db.query(f"grant update (id) on public.events to {RELAY_ROLE}")  # of an unordered queue, rows are locked
    log = StatementLog(db)
    run.add(400, keys=40)
    run.start(ordering=ordering, retry="{ base: 20ms, max: 20ms, attempts: 1000 }")
    wait_until(lambda: len(run.logged(f"event.stuck .*event={GUARDED}")) >= 3 and run.shop.left() == 1, 60, "one row to be stuck")
    db.query("drop trigger guard on public.events")
    run.wait_until_empty()
    run.stop()
    done = sum(map(told, log.sessions("pgcourier").values()), Counter())
    assert done[AHEAD] > 0 and done[BEHIND] == 0
    if ordering == "lease":
        assert done["savepoint"] == 0
    else:
        assert done["savepoint"] > done["rollback to"] >= 3
    receipts = run.target.receipts()
    again = [Fault("the row stays", 1, ids=[GUARDED])] * sum(receipt.id == GUARDED for receipt in receipts)
    run.shop.check(receipts, again, ordered=ordering != "unordered")


# ---- rows ----

def test_a_row_that_somebody_holds_keeps_nothing_from_being_settled_in_the_end(run):
    """The second of a key's three; what was delivered is settled when the row is free, and not delivered again."""
    events = run.add(60, keys=20)
    with run.db.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("select ctid::text from public.events where id = %s for update", (events[25].id,))
        ((row,),) = cursor.fetchall()
        one = run.start(connections=1)
        run.wait_for(60)
        run.wait_for_log("lock_timeout")
        line = one.logged("settle.failed")[0]
        assert "table=public.events" in line and f"row with ctid {row}" in line and "pg_blocking_pids()" in line
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
