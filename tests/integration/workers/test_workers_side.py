"""What a relay settles by its side connection, whose session has no lock of the key: it stands still until a worker has the key."""

import signal

import pytest

from tests.support.postgres import OWNER_ROLE, RELAY_ROLE
from tests.support.process import stands_still
from tests.support.relay import binary
from tests.support.servers import PgBouncer, Reply, wait_until
from tests.support.workers import Worker

CONFIG = """
database: "{database}"
sinks: {{ web: {{ type: http, url: "{url}", timeout: 300s }} }}
queues:
  tasks: {{ sink: web, connections: 1, retry: {{ base: 1h, max: 1h{retry} }}, latency: 1ms, poll: {{ max: 5ms }}{more} }}
"""

CLAIMS = f"select pg_terminate_backend(pid) from pg_stat_activity where usename = '{RELAY_ROLE}' and state = 'idle in transaction'"
OVER = "update outbox.parked set next_at = clock_timestamp() where token is not null"


@pytest.fixture
def worker(db):
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('tasks')")
    one = Worker(db, "tasks")
    yield one
    one.close()


@pytest.fixture(params=["locks", "leases"])
def held(request, pg, db):
    """By what the relay has its keys: the database it connects to, settings of its queue, and what takes the keys from it. Its
    locks are those of another connection only where a pooler shares its sessions."""
    if request.param == "leases":
        yield db.dsn, ", ordering: lease, lease: { duration: 1h }", OVER
        return
    with PgBouncer(pg, user=RELAY_ROLE) as bouncer:
        yield bouncer.dsn(db.name), "", CLAIMS


def failed(db, http):
    """Its head was not delivered."""
    http.rule(lambda request: b'"b"' in request.body, Reply(500))


def delayed(db, http):
    """Its head is not due, until the worker comes."""
    db.query("update outbox.events set not_before = now() + interval '1 h' where aggregateid = 'b'")


def resumed(db, http):
    """Its head had failed before and was delivered now."""
    db.query("insert into outbox.parked (queue, key, event_id, attempts, next_at) select 'tasks', 'b', id, 3, now() from outbox.events where aggregateid = 'b'")


@pytest.fixture
def overtaken(db, worker, held, relay, http, tmp_path):
    """overtaken(settled) -> what a worker has taken from a relay that is about to settle, and what lets the relay go on to its end."""
    database, more, take_away = held

    def run(settled, retry=""):
        answered = []
        http.rule(lambda request: b'"slow"' in request.body and not answered, Reply(action="hang"))
        for key in ("slow", "b"):
            db.query("insert into outbox.events (aggregateid, payload) values (%s, to_jsonb(%s::text))", [key, key])
        settled(db, http)
        one = relay(CONFIG.format(database=database, url=http.url, more=more, retry=retry), program=binary(["dev"]),
                    env={"PGCOURIER_FAULT": "side.settle:1:stop", "PGCOURIER_FAULT_LOG": str(tmp_path / "faults")})
        wait_until(lambda: (tmp_path / "faults").exists() and stands_still(one.pid), what="the relay to be about to settle")
        assert worker.take(10) == []
        db.query(take_away)
        db.query("update outbox.events set not_before = null")
        taken = []
        wait_until(lambda: taken.extend(worker.take(10, lease="1 hour")) or len(taken) == 2, what="the worker to have both")

        def go_on():
            answered.append(True)
            http.release()
            one.send(signal.SIGCONT)
            assert one.stop() == 0

        return taken, go_on

    return run


@pytest.mark.parametrize("settled", [failed, delayed, resumed])
def test_a_settlement_that_comes_when_a_worker_has_the_key_leaves_it_to_him(db, worker, overtaken, settled):
    taken, go_on = overtaken(settled)
    leases = db.query("select token, next_at from outbox.status_leases join outbox.parked using (queue, key) order by 1")
    go_on()
    assert db.query("select token, next_at from outbox.parked order by 1") == leases
    assert [worker.done(event.token) for event in taken] == [True, True]


def test_a_key_is_not_closed_for_an_event_that_a_worker_has_done_meanwhile(db, worker, overtaken):
    taken, go_on = overtaken(failed, ", attempts: 1, on_exhausted: park")
    assert [worker.done(event.token) for event in taken] == [True, True]
    go_on()
    assert db.query("select key, event_id, next_at from outbox.parked") == []
