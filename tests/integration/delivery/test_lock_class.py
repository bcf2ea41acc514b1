"""Two relays that serve one table by different classes of locks would each deliver everything: the second is refused, and told who the
first is. Classes that agree are nobody's business, and what a relay leaves behind keeps nobody from starting."""

import re
import signal
import threading
from contextlib import contextmanager

import pytest

from tests.support.postgres import OWNER_ROLE, RELAY_ROLE, REPLAY_ROLE
from tests.support.servers import PgBouncer, run_command, wait_until
from tests.support.workers import owner

CONFIG = """
database: "{dsn}"
sinks: {{ out: {{ type: file, path: {path}, sync: false }} }}
queues: {{ {name}: {{ table: {table}, columns: {{ id: id, key: k }}, sink: out{more} }} }}
"""
TABLE = "create table {name} (id bigserial primary key, k text); create index on {name} (k, id);"
SHOWN = ("select count(distinct pid) from pg_locks where locktype = 'advisory' and objsubid = 1 and classid = 'public.events'::regclass"
         " and mode = 'ShareLock'")


@pytest.fixture
def config(db, tmp_path):
    """config("a", lock_class=7) -> the text of a configuration."""
    db.query(TABLE.format(name="public.events"))
    db.let_relay_in("public.events")

    def write(name="orders", lock_class=0, dsn=None, table="public.events", more=""):
        more += f", lock_class: {lock_class}" if lock_class else ""
        return CONFIG.format(dsn=dsn or db.dsn, path=tmp_path / f"{name}.jsonl", name=name, table=table, more=more)

    return write


@pytest.fixture
def run(tmp_path):
    """run(config) -> the exit code and the last line of a relay that ends when there is nothing left."""
    def run(text, *arguments):
        path = tmp_path / "second.yaml"
        path.write_text(text)
        done = run_command("run", "-c", str(path), *(arguments or ["--until-empty"]))
        return done.returncode, done.stderr.splitlines()[-1]

    return run


@contextmanager
def serving(db, relay, text):
    """A relay whose own connections show what it serves."""
    running = relay(text)
    wait_until(lambda: has_begun(db, running), what="a relay that serves")
    yield running
    assert running.stop() == 0


def has_begun(db, running):
    """Its own connections show what it serves, and the one that has looked at the table is gone: this is the last that it has asked."""
    return running.logged("relay.start") and db.value(SHOWN) == 1 and not db.value(
        "select count(*) from pg_stat_activity where datname = current_database() and query like '-- Makes the name of a relay%'")


@pytest.mark.parametrize("more", ["", ", ordering: lease", ", where: 'id > 0'", ", ordering: unordered, locks: advisory"])
@pytest.mark.parametrize("classes", [(0, 7), (7, 0), (5, 7)])
def test_another_class_of_locks_is_refused_and_the_first_relay_is_named(db, relay, config, run, classes, more):
    with serving(db, relay, config("first", classes[0], more=more)):
        pid = db.value(SHOWN.replace("count(distinct pid)", "min(pid)"))
        code, said = run(config("second", classes[1], more=more))
    assert code == 78
    first = classes[0] or db.value("select outbox.lock_class_of('public.events')")
    assert re.search(rf"queue second: public\.events is served with lock class {first} already, by pgcourier at 127\.0\.0\.1, pid {pid} of"
                     rf" {RELAY_ROLE} \(queue first\), and with -?\d+ here: .* stop every relay of the table", said), said


def test_relays_with_the_same_class_serve_together(db, relay, config, run):
    with serving(db, relay, config("first", 7)):
        assert run(config("first", 7))[0] == 0
        assert run(config("second", 7))[0] == 0


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_what_has_ended_keeps_nobody_from_another_class(db, relay, config, run, end):
    """Its row in outbox.served stays; its sessions may, for a moment."""
    first = relay(config("first", 5))
    wait_until(lambda: has_begun(db, first))
    first.process.end(end)
    db.query("insert into public.events (k) values ('a')")
    assert run(config("first", 7))[0] == 0 and db.value("select count(*) from public.events") == 0
    assert db.query("select lock_class from outbox.served") == [(7,)]


def test_of_two_that_start_together_one_is_refused(db, relay, config):
    """Nothing is served yet: the lock by which starts take turns lets both go at the same moment."""
    gate = db.connect(autocommit=False)
    gate.cursor().execute("select pg_advisory_xact_lock(-1432238139, 0)")
    relays = [relay(config(f"queue_{n}", n)) for n in (5, 7)]
    wait_until(lambda: db.value("select count(*) from pg_locks where locktype = 'advisory' and not granted") == 2)
    gate.rollback()
    gate.close()
    wait_until(lambda: [each.process.returncode for each in relays].count(None) == 1, what="the end of one")
    ended, = [each for each in relays if each.process.returncode is not None]
    other, = [each for each in relays if each is not ended]
    assert ended.exit_code == 78 and "is served with lock class" in ended.log[-1]
    assert other.stop() == 0


def test_partitions_and_their_table_are_one(db, relay, config, run):
    db.query("create table public.parts (id bigint generated by default as identity, k text, primary key (id)) partition by range (id);"
             "create table public.part partition of public.parts for values from (0) to (1000); create index on public.parts (k, id);"
             "create table public.other partition of public.parts for values from (1000) to (2000)")
    db.let_relay_in("public.parts", "public.part", "public.other")
    running = relay(config("first", 5, table="public.part"))
    wait_until(lambda: db.value(SHOWN.replace("events", "part")) == 1)
    assert run(config("second", 7, table="public.parts"))[0] == 78
    assert run(config("second", 7, table="public.other"))[0] == 0
    assert running.stop() == 0


def test_a_relay_that_lost_its_connections_stands_still_beside_another(db, relay, config, pg):
    """It may find another in its place; when that is gone it goes on by itself."""
    with serving(db, relay, config("first", 5)) as first:
        gate = db.connect(autocommit=False)  # as if another relay had begun while the first one was away
        gate.cursor().execute("select pg_advisory_lock_shared(('public.events'::regclass::oid::bigint << 32) | 7)")
        gate.commit()
        db.query("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pgcourier' and datname = current_database()")
        wait_until(lambda: first.logged("upkeep.failed .*task=serving .*is served with lock class 7 already"))
        db.query("insert into public.events (k) values ('a')")
        assert db.value(SHOWN) == 1 and db.value("select count(*) from public.events") == 1
        gate.close()
        wait_until(lambda: db.value("select count(*) from public.events") == 0, what="the relay to go on")


def test_events_that_another_relay_keeps_from_this_one_are_no_empty_queue(db, relay, config, tmp_path):
    delivered = tmp_path / "delivered"  # no delivery ends before this file is there
    command = f"[sh, -c, 'until [ -e {delivered} ]; do sleep 0.05; done']"
    db.query("insert into public.events (k) values ('a'), ('a')")
    running = relay(re.sub(r"type: file[^}]*", f"type: exec, command: {command} ", config("first", 5)), until_empty=True)
    wait_until(lambda: has_begun(db, running))
    gate = db.connect(autocommit=False)
    gate.cursor().execute("select pg_advisory_lock_shared(('public.events'::regclass::oid::bigint << 32) | 7)")
    gate.commit()
    db.query("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pgcourier' and datname = current_database()")
    refused = "upkeep.failed .*task=serving .*is served with lock class 7 already"
    wait_until(lambda: len(running.logged(refused)) > 1 or running.process.returncode is not None, what="two looks")
    assert running.process.returncode is None and db.value("select count(*) from public.events") == 2
    delivered.touch()
    gate.close()
    assert running.wait() == 0 and db.value("select count(*) from public.events") == 0


def test_a_new_configuration_with_another_class_is_refused(db, relay, config):
    with serving(db, relay, config("first", 5)) as running:
        running.configure(config("first", 7))
        running.send(signal.SIGHUP)
        wait_until(lambda: running.logged("config.refused .*is served with lock class 5 already"))
        running.configure(config("second", 5))
        running.send(signal.SIGHUP)
        wait_until(lambda: running.logged("config.loaded"))


def test_a_role_with_fewer_rights_is_refused_too(db, relay, config, run):
    db.query("revoke execute on function outbox.note_served(text, regclass, int, text, jsonb), outbox.note_serving(text, oid, int, text, boolean)"
             " from outbox_relay; revoke select (queue, tbl, lock_class) on outbox.served from outbox_relay")
    with serving(db, relay, config("first", 5)):
        code, said = run(config("second", 7))
    assert code == 78 and "by pgcourier at" in said and "(queue" not in said


@pytest.mark.parametrize("pooled", [("first",), ("second",), ("first", "second")], ids="+".join)
def test_a_pooler_hides_nobody(db, pg, relay, config, run, pooled):
    with PgBouncer(pg, pool_mode="transaction", user=RELAY_ROLE) as pooler:
        dsn = {name: pooler.dsn(db.name) if name in pooled else db.dsn for name in ("first", "second")}
        running = relay(config("first", 5, dsn["first"]))
        wait_until(lambda: db.value("select count(*) from outbox.serving") == 1 if "first" in pooled else has_begun(db, running))
        code, said = run(config("second", 7, dsn["second"]))
        assert code == (75 if "first" in pooled else 78) and "is served with lock class 5 already, by " in said
        assert said.count("(queue ") == 1 and ("the relay with process id %d at " % running.pid in said) == ("first" in pooled), said
        assert run(config("second", 5, dsn["second"]))[0] == 0
        assert running.stop() == 0
        assert run(config("third", 7, dsn["second"]))[0] == 75  # what ended behind a pooler is believed in for a while, not for ever
        db.query("update outbox.serving set live_until = clock_timestamp()")
        assert run(config("second", 7, dsn["second"]))[0] == 0


def test_nobody_keeps_others_from_a_table_that_is_not_his(db, config):
    db.query(TABLE.format(name="public.private"))
    with db.connect(user=RELAY_ROLE) as session, pytest.raises(Exception, match="may not delete from"):
        session.cursor().execute("select outbox.note_serving('q', 'public.private'::regclass, 7, 'me', true)")
    session.close()


def test_workers_get_no_other_class_than_a_relay(db, relay, config):
    db.query(f"grant select, delete on public.events to {OWNER_ROLE}")
    with serving(db, relay, config("first", 5)):
        with pytest.raises(Exception, match="a relay serves public.events with lock_class 5, and not 7: pgcourier, pid"):
            owner(db, "select outbox.queue_set('first', 'public.events', key_column => 'k', lock_class => 7)")
        owner(db, "select outbox.queue_set('first', 'public.events', key_column => 'k', lock_class => 5)")


def test_a_replay_takes_the_locks_of_the_relays_or_none(db, relay, config, tmp_path):
    dsn = db.dsn.replace(RELAY_ROLE, REPLAY_ROLE)
    db.query("insert into public.events (k) values ('a'), ('b')")
    with serving(db, relay, config("orders", 5, more=", after: archive")):
        wait_until(lambda: db.value("select count(*) from outbox.archive") == 2)
        for lock_class, code in ((7, 78), (5, 0)):
            path = tmp_path / "replay.yaml"
            path.write_text(config("orders", lock_class, dsn, more=", after: archive"))
            done = run_command("replay", "-c", str(path), "--queue", "orders", "--key", "a")
            assert done.returncode == code, done.stderr
            assert code == 0 or "is served with lock class 5 already" in done.stderr
