"""Queues that hand on what workers end (queue_set(..., then_queue => ...)): exactly once and in order, beside relays that do the same."""

import random
import threading

import psycopg2
import pytest

from tests.support.history import Event, Final, Receipt, check
from tests.support.postgres import OWNER_ROLE
from tests.support.servers import Reply, run_command, wait_until
from tests.support.workers import Worker, owner

TABLES = """
create table public.first (id bigserial primary key, k text, body jsonb);
create table public.second (id bigserial primary key, k text, body jsonb);
create index on public.first (k, id);
create index on public.second (k, id);
"""
COLUMNS = "key_column => 'k', payload_column => 'body'"
RELAY = """
database: "{db}"
sinks: {{ web: {{ type: http, url: "{url}" }}, none: {{ type: discard }} }}
queues:
  first: {{ table: public.first, columns: {{ key: k, payload: body }}, sink: web, then: second, then_payload: {payload}, ordering: {ordering},
            retry: {{ base: 1ms, max: 20ms, attempts: 10000 }}, keys_per_claim: 4, max_events_per_key: 4 }}
  second: {{ table: public.second, columns: {{ key: k, payload: body }}, sink: none }}
"""
KEYS, EVENTS, WORKERS = 30, 900, 3


@pytest.fixture
def stages(db):
    """A function that makes both tables and both queues."""
    def make(first="", second=COLUMNS):
        db.psql(TABLES)
        db.let_relay_in("public.first", "public.second")
        db.let_hand_on("public.second")
        db.psql(f"grant select, insert, delete on public.first, public.second to {OWNER_ROLE};"
                f"grant usage on sequence public.second_id_seq to {OWNER_ROLE}")
        owner(db, f"select outbox.queue_set('second', 'public.second', {second})")
        owner(db, f"select outbox.queue_set('first', 'public.first', {COLUMNS}, then_queue => 'second'{first})")

    return make


@pytest.fixture
def worker(db):
    one = Worker(db, "first")
    yield one
    one.close()


def produce(db, count):
    db.query("insert into public.first (id, k, body) select n, 'k' || n %% %s, jsonb_build_object('of', n) from"
             " (select nextval('public.first_id_seq') as n from generate_series(1, %s)) e", [KEYS, count])


def second(db):
    return db.query("select k, body from public.second order by id")


class Staff:
    """Workers that take, and end what they took alone or together; some verdicts are rolled back, some workers vanish."""

    def __init__(self, db, responses):
        self.db, self.responses = db, responses
        self.errors, self.ended = [], 0
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(number,)) for number in range(WORKERS)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()

    def _run(self, number):
        rng = random.Random(number)
        try:
            while not self.over.is_set():
                worker = Worker(self.db, "first", f"worker-{number}")
                while not self.over.is_set() and rng.random() > 0.05:
                    self._turn(worker, rng)
                worker.close()
        except Exception as error:  # for the test to raise
            self.errors.append(error)

    def _turn(self, worker, rng):
        taken = worker.take(8, "1 s")
        answers = [f'{{"of": {event.id}}}' for event in taken] if self.responses else None
        if not taken:
            self.over.wait(0.02)
        elif rng.random() < 0.1:
            with worker.connection.cursor() as cursor:
                cursor.execute("begin; select outbox.done_all(%s::uuid[], %s::text[]); rollback", ([event.token for event in taken], answers))
        elif rng.random() < 0.1:
            worker.fail(taken[0].token, "by chance")
        elif rng.random() < 0.5:
            self.ended += worker.done_all([event.token for event in taken], answers)
        else:
            self.ended += sum(worker.done(event.token, *(answers[n:n + 1] if answers else ())) for n, event in enumerate(taken))


@pytest.mark.parametrize("payload", [pytest.param("event", marks=pytest.mark.deep), "response"])
@pytest.mark.parametrize("ordering", [None, "per_key", "lease"], ids=["workers alone", "beside relays", "beside relays with leases"])
def test_what_workers_and_relays_end_goes_on_once_and_in_order(db, http, relay, stages, payload, ordering):
    stages(f", then_payload => '{payload}', retry_base => '1 ms', retry_max => '20 ms', max_attempts => 10000")
    db.query("select outbox.pause('second')")
    http.respond = lambda request: Reply(body=b'{"of": %s}' % request.headers["event-id"].encode(), delay_s=0.01)
    config = RELAY.format(db=db.dsn, url=http.url, payload=payload, ordering=ordering)
    running = [relay(config) for _ in range(2)] if ordering else []
    with Staff(db, payload == "response") as staff:
        for _ in range(3):
            produce(db, EVENTS // 3)
            wait_until(lambda: staff.errors or db.value("select count(*) from public.first") < EVENTS // 6, 60)
            if running:
                running.pop(0).kill()
                running.append(relay(config))
        wait_until(lambda: staff.errors or db.value("select count(*) from public.first") == 0, 60)
    assert staff.errors == [] and staff.ended > 0
    assert [one.stop() for one in running] == [0] * len(running)
    receipts = [Receipt(body["of"], key, "ack") for key, body in second(db)]
    check([Event(n, f"k{n % KEYS}") for n in range(1, EVENTS + 1)], receipts, final=Final([])).require()
    assert len(receipts) == EVENTS


def test_done_in_a_transaction_of_the_workers_own_goes_on_with_it(db, stages, worker):
    stages(", after => 'archive'")
    produce(db, 2)
    one, other = worker.take(2)
    with worker.connection.cursor() as cursor:
        cursor.execute("begin; select outbox.done(%s); rollback", [one.token])
    assert second(db) == []
    with worker.connection.cursor() as cursor:
        cursor.execute("begin; select outbox.done(%s); select outbox.done(%s); commit", [other.token, one.token])
    assert second(db) == [("k2", {"of": 2}), ("k1", {"of": 1})]
    assert db.value("select count(*) from outbox.archive where queue = 'first'") == 2


def test_what_fails_does_not_go_on(db, stages, worker):
    stages()
    produce(db, 2)
    one, other = worker.take(2)
    assert worker.fail(one.token, fatal=True) and worker.release(other.token)
    assert second(db) == [] and db.value("select count(*) from outbox.dead") == 1


def test_a_response_that_its_column_does_not_take_changes_nothing(db, stages, worker):
    stages(", then_payload => 'response'")
    produce(db, 3)
    taken = worker.take(3)
    with pytest.raises(psycopg2.errors.InvalidTextRepresentation):
        worker.done_all([event.token for event in taken], ["{}", "<html>", "{}"])
    assert second(db) == [] and db.value("select count(*) from outbox.status_leases") == 3
    assert worker.done_all([event.token for event in reversed(taken)], ['{"n": 3}', None, '{"n": 1}']) == 3
    assert second(db) == [("k1", {"n": 1}), ("k2", None), ("k3", {"n": 3})]


@pytest.mark.parametrize("after", ["delete", "archive"])
def test_a_trigger_that_keeps_a_row_out_of_the_next_table_changes_nothing(db, stages, worker, after):
    stages(f", after => '{after}'")
    db.psql("create function public.refuse() returns trigger language plpgsql as $$ begin return null; end $$;"
            "create trigger refuse before insert on public.second for each row when (new.k = 'k1') execute function public.refuse()")
    produce(db, 2)
    tokens = [event.token for event in worker.take(2)]
    with pytest.raises(psycopg2.errors.ObjectNotInPrerequisiteState, match="1 of 2 rows did not go into public.second: a trigger keeps them out"):
        worker.done_all(tokens)
    assert second(db) == [] and db.value("select count(*) from outbox.status_leases") == 2
    db.psql("drop trigger refuse on public.second")
    assert worker.done_all(tokens) == 2
    assert sorted(k for k, _ in second(db)) == ["k1", "k2"]


KINDS = {"json": ('{"b":  1}', '{"b":  1}'), "text": ("naïve", "naïve"), "varchar(9)": ("naïve", "naïve"), "bytea": ("naïve", "\\x6e61c3af7665")}


@pytest.mark.parametrize("kind", KINDS)
def test_a_response_becomes_what_its_column_is(db, stages, worker, kind):
    stages(", then_payload => 'response'")
    db.psql(f"alter table public.second drop body; alter table public.second add body {kind}")
    owner(db, f"select outbox.queue_set('second', 'public.second', {COLUMNS})")  # and the queue before it is made anew
    produce(db, 1)
    given, stored = KINDS[kind]
    assert worker.done(worker.take()[0].token, given)
    assert db.value("select body::text from public.second") == stored


WRONG_RESPONSES = [("", "done", "'no'", "^done: queue 'first' hands no response on"),
                   (", then_payload => 'response'", "done_all", "array['1', '2']", "^done_all: 2 responses to 1 tokens")]


@pytest.mark.parametrize("first, function, response, text", WRONG_RESPONSES, ids=["not wanted", "too many"])
def test_a_response_in_the_wrong_place_is_refused(db, stages, worker, first, function, response, text):
    stages(first)
    produce(db, 1)
    (event,) = worker.take()
    token = f"array['{event.token}']::uuid[]" if function == "done_all" else f"'{event.token}'"
    with pytest.raises(psycopg2.errors.InvalidParameterValue, match=text):
        worker._value(f"select outbox.{function}({token}, {response})")
    assert worker.done(event.token)


UNFIT = [
    ("'q', 'public.t', then_queue => 'nosuch'", "42704", "there is no queue 'nosuch' to go on to"),
    ("'q', 'public.t', then_queue => 'q'", "22023", "comes back to 'q', for ever"),
    (f"'second', 'public.second', {COLUMNS}, then_queue => 'first'", "22023", "comes back to 'second', for ever"),
    ("'q', 'public.t', then_payload => 'response'", "22023", "hands nothing on"),
    ("'q', 'public.t', then_queue => 'bare', then_payload => 'response'", "22023", "has no column for a response"),
    ("'q', 'public.t', then_queue => 'bare'", "22023", "nothing would go on to queue 'bare'"),
    ("'q', 'public.t', payload_column => 'k', then_queue => 'second'", "42804", "column \"body\" is of type jsonb"),
    ("'q', 'public.t', then_queue => 'closed'", "42501", "who may not insert into public.closed"),
    ("'q', 'public.t', then_queue => 'unfed'", "42501", "has no usage on sequence public.unfed_id_seq"),
    ("'q', 'public.t', then_queue => 'strict'", "55000", "must of public.strict must not be null"),
]


@pytest.mark.parametrize("arguments, code, text", UNFIT, ids=[row[2] for row in UNFIT])
def test_what_cannot_go_on_is_refused_when_the_queue_is_set(db, stages, arguments, code, text):
    stages()
    db.psql(f"create table public.t (id bigserial primary key, k text); create table public.bare (id int generated always as identity primary key);"
            f"create table public.closed (id int generated always as identity primary key, body json);"
            f"create table public.unfed (id bigserial primary key, body json);"
            f"create table public.strict (id int generated always as identity primary key, must int not null, body json);"
            f"grant select, delete on public.t, public.bare, public.closed, public.unfed, public.strict to {OWNER_ROLE};"
            f"grant insert on public.bare, public.unfed, public.strict to {OWNER_ROLE}")
    owner(db, "select outbox.queue_set('bare', 'public.bare')")
    for name in "closed", "unfed", "strict":
        owner(db, f"select outbox.queue_set('{name}', 'public.{name}', payload_column => 'body')")
    before = db.query("select * from outbox.queue order by name")
    with pytest.raises(psycopg2.Error, match=text) as refused:
        owner(db, f"select outbox.queue_set({arguments})")
    assert refused.value.pgcode == code and db.query("select * from outbox.queue order by name") == before


def test_a_queue_that_another_hands_on_to_is_not_dropped(db, stages):
    stages()
    with pytest.raises(psycopg2.errors.DependentObjectsStillExist, match="queue 'first' hands on to queue 'second'"):
        owner(db, "select outbox.queue_drop('second')")
    owner(db, "select outbox.queue_drop('first'); select outbox.queue_drop('second')")
    assert db.query("select proname from pg_proc where proname ~ '^queue_[0-9]'") == []


DIFFERENCES = {
    "then": ("select outbox.queue_set('first', 'public.first', key_column => 'k', payload_column => 'body')", "with another then (outbox.queue) than relays:"
             " what they end would go on to no queue"),
    "then_payload": ("select outbox.queue_set('first', 'public.first', key_column => 'k', payload_column => 'body', then_queue => 'second',"
                     " then_payload => 'response')", "with another then_payload (outbox.queue) than relays: what they end would go on to queue second"),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_relays_and_workers_that_would_hand_on_differently_are_told(db, stages, tmp_path, name):
    stages()
    path = tmp_path / "pgcourier.yaml"
    path.write_text(RELAY.format(db=db.dsn, url="http://localhost", payload="event", ordering="per_key"))
    assert run_command("check-config", "-c", str(path), "--database").returncode == 0
    setup, text = DIFFERENCES[name]
    owner(db, setup)
    done = run_command("check-config", "-c", str(path), "--database")
    assert done.returncode == 78 and text in done.stdout, done
    assert "fix: select outbox.queue_set('first', ..., then_queue => 'second', then_payload => 'event');" in done.stdout


def test_a_worker_in_a_shell_answers(db, stages, worker):
    stages(", then_payload => 'response'")
    produce(db, 1)
    (event,) = worker.take()
    done = run_command("done", event.token, "--response", '{"by": "shell"}', "-d", db.worker_dsn)
    assert done.returncode == 0, done
    assert second(db) == [("k1", {"by": "shell"})]
