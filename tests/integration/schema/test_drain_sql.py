"""outbox.drain(): pauses a queue or a key by SQL and waits until nothing of it is on its way, whoever has it."""

import subprocess

import psycopg2
import pytest

from tests.support.postgres import OWNER_ROLE
from tests.support.servers import Reply, wait_until
from tests.support.workers import Worker

CONFIG = """
database: "{dsn}"
sinks: {{ web: {{ type: http, url: "{url}" }} }}
queues: {{ jobs: {{ table: public.jobs, columns: {{ id: id, key: k, payload: body }}, lock_class: 7, sink: web, keys_per_claim: 1 }} }}
"""
PAUSED = "select queue, key from outbox.paused"


@pytest.fixture
def jobs(db, http, relay):
    """Of two keys, on their way for as long as it says: jobs(seconds)."""
    db.query("create table public.jobs (id bigserial primary key, k bigint, body jsonb); create index on public.jobs (k, id)")
    db.let_relay_in("public.jobs")

    def start(delay_s):
        http.respond = lambda request: Reply(delay_s=delay_s)
        one = relay(CONFIG.format(dsn=db.dsn, url=http.url))
        db.query("insert into public.jobs (k, body) values (8, '{}'), (7, '{}')")
        wait_until(lambda: len(http.requests) == 2, what="both to be on their way")
        return one

    return start


def refused(db, call, sqlstate):
    with pytest.raises(psycopg2.Error) as error:
        db.query(call)
    assert error.value.diag.sqlstate == sqlstate
    return error.value.diag


@pytest.mark.parametrize("subject", ["'jobs'", "'jobs', '7'"])
def test_it_ends_when_the_last_answer_is_settled(db, http, jobs, subject):
    one = jobs(0.7)
    assert db.value(f"select outbox.in_flight({subject})") == (1 if "7" in subject else 2)
    db.query(f"call outbox.drain({subject})")
    assert [row[0] for row in db.query("select k from public.jobs")] in ([], [8] if "7" in subject else [])
    assert db.value(f"select outbox.in_flight({subject})") == 0
    assert db.query(PAUSED) == [("jobs", "7" if "7" in subject else None)]
    assert one.stop() == 0


def test_after_its_time_it_says_who_is_late_and_the_queue_stays_paused(db, jobs):
    jobs(60)
    said = refused(db, "call outbox.drain('jobs', timeout => '100 ms')", "55P03")
    assert said.message_primary == "drain: queue 'jobs' is paused, and 2 keys are still on the way after 00:00:00.1"
    assert "outbox.resume()" in said.message_hint
    assert db.query(PAUSED) == [("jobs", None)]


def test_it_waits_for_what_workers_have(db):
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('tasks')")
    db.query("insert into outbox.events (aggregateid, type) values ('a', 't'), ('b', 't')")
    worker = Worker(db, "tasks")
    one, other = worker.take(2)
    assert "2 keys are" in refused(db, "call outbox.drain('tasks', timeout => '0 s')", "55P03").message_primary
    worker.done(one.token)
    assert "1 key is" in refused(db, f"call outbox.drain('tasks', '{other.key}', '0 s')", "55P03").message_primary
    db.query(f"call outbox.drain('tasks', '{one.key}', '0 s')")
    worker.done(other.token)
    db.query("call outbox.drain('tasks', timeout => '0 s')")
    worker.close()


@pytest.mark.parametrize("call, sqlstate", [
    ("drain('jubs')", "42704"), ("drain(null)", "22023"), ("drain('unknown')", "55000"), ("drain('jobs', '07')", "22023"),
    ("drain('jobs', timeout => null)", "22023"), ("drain('jobs', timeout => '-1 s')", "22023"), ("drain('jobs'); select 1", "2D000")])
def test_bad_calls_are_refused_and_pause_nothing(db, call, sqlstate):
    db.query("insert into outbox.served (queue, lock_class, key_type) values ('jobs', 7, 'bigint'), ('unknown', null, null)")
    assert refused(db, f"call outbox.{call}", sqlstate)
    assert db.query(PAUSED) == []


@pytest.mark.parametrize("call, sqlstate, said", [
    ("drain('jubs')", "42704", "drain: there is no queue 'jubs'"), ("drain('jobs', '07')", "22023", "drain: '07' is no key of queue 'jobs'"),
    ("drain('jobs', reason => repeat('x', 1001))", "22001", "drain: the reason has 1001 characters")])
def test_what_is_wrong_is_said_of_the_procedure_that_was_called(db, call, sqlstate, said):
    db.query("insert into outbox.served (queue, lock_class, key_type) values ('jobs', 7, 'bigint')")
    why = refused(db, f"call outbox.{call}", sqlstate)
    assert why.message_primary == said and why.message_hint
    assert db.query(PAUSED) == []


def test_in_a_transaction_it_is_refused_with_what_to_do(db):
    db.query("insert into outbox.served (queue, lock_class, key_type) values ('jobs', 7, 'bigint')")
    connection = db.connect(autocommit=False)
    with connection.cursor() as cursor, pytest.raises(psycopg2.Error) as error:
        cursor.execute("call outbox.drain('jobs')")
    assert error.value.pgcode == "2D000" and str(error.value).startswith("drain: in a transaction it cannot commit the pause")
    assert "outbox.in_flight()" in error.value.diag.message_hint
    connection.close()
    db.query("do $$ begin perform pg_sleep(0.01); commit; call outbox.drain('jobs'); end $$")
    assert db.query(PAUSED) == [("jobs", None)]


@pytest.mark.parametrize("protocol", ["simple", "extended", "prepared"])
def test_it_is_called_by_every_protocol(db, tmp_path, protocol):
    """A statement that comes in parts began before its last part, as one in a transaction began before it."""
    db.query("insert into outbox.served (queue, lock_class, key_type) values ('jobs', 7, 'bigint')")
    script = tmp_path / "drain.sql"
    script.write_text("call outbox.drain('jobs');\n")
    done = subprocess.run(["pgbench", "-n", "-t", "2", "-M", protocol, "-f", str(script), db.dsn], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "2/2" in done.stdout, done.stderr
    assert db.query(PAUSED) == [("jobs", None)]


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
@pytest.mark.parametrize("call", ["select outbox.in_flight('jobs')", "call outbox.drain('jobs')"])
def test_a_snapshot_from_before_the_locks_is_refused(db, call, level):
    """Locks are counted first, then leases: of a key that has become leased in between it would see neither."""
    db.query("insert into outbox.served (queue, lock_class, key_type) values ('jobs', 7, 'bigint')")
    connection = db.connect()
    cursor = connection.cursor()
    cursor.execute(f"set default_transaction_isolation = '{level}'")
    with pytest.raises(psycopg2.Error) as error:
        cursor.execute(call)
    assert error.value.pgcode == "25000" and level in str(error.value) and error.value.diag.message_hint
    assert db.query(PAUSED) == []
    cursor.execute("set default_transaction_isolation = 'read committed'; set default_transaction_read_only = on")
    cursor.execute("select outbox.in_flight('jobs')")
    assert cursor.fetchall() == [(0,)]
    connection.close()
