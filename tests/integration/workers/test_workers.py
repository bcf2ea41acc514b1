"""Workers that pull: every shape of table, beside relays, and what is refused."""

from concurrent.futures import ThreadPoolExecutor

import psycopg2
import pytest

from tests.support.postgres import OWNER_ROLE, WORKER_ROLE
from tests.support.servers import Reply, run_command, wait_until
from tests.support.workers import Worker, add, left, owner

RELAY = """
database: "{dsn}"
sinks: {{ out: {{ {sink} }} }}
queues:
  tasks: {{ sink: out, destination: d, retry: {{ base: {base}, max: 1h }}, latency: 1ms, poll: {{ max: 5ms }} }}
"""


def over(db):
    """The terms of all leases, and all waits, are over now."""
    db.query("update outbox.parked set next_at = clock_timestamp() where next_at <> 'infinity'")


@pytest.fixture
def worker(db):
    owner(db, "select outbox.queue_set('tasks')")
    one = Worker(db, "tasks")
    yield one
    one.close()


# ---- tables ----

# Columns that are called as parameters and results of the functions that read them.
OURS = ("id bigserial primary key, k text, expired boolean not null default false, rows int, from_id int, sweep_to int,"
        " keys text, until int, seen int default 1, token text")
OURS_FREE = "not expired and from_id is null and rows is null and keys is null and until is null and token is null and seen = 1"

SHAPES = {
    "bigint": ("id bigserial primary key, order_id bigint, status text", "7", "'9223372036854775807'",
               "key_column => 'order_id', type_column => 'status'"),
    "integer and odd names": ('"the id" serial primary key, "the ""key""" int, "select" bytea', "-3", "42",
                              "id_column => 'the id', key_column => 'the \"key\"', payload_column => 'select'"),
    "uuid": ("id bigint generated always as identity primary key, k uuid, e json", "'00000000-0000-0000-0000-00000000000a'",
             "'FFFFFFFF-0000-0000-0000-00000000000b'", "key_column => 'k', payload_column => 'e'"),
    "text": ("id bigint generated always as identity primary key, k varchar(20), at timestamp default now()", "'a''%s'", "''",
             "key_column => 'k', created_at_column => 'at'"),
    "names of ours": (OURS, "'a'", "'b'", f"key_column => 'k', condition => '{OURS_FREE}'"),
    "names of ours, priorities": (OURS, "'a'", "'b'", f"key_column => 'k', priority_column => 'seen', condition => '{OURS_FREE}'"),
}


@pytest.mark.parametrize("indexed", [True, False], ids=["indexed", "not indexed"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_table_of_any_shape_is_worked_off_in_order(db, shape, indexed):
    columns, one, other, names = SHAPES[shape]
    db.query(f'create schema "My Shop"; create table "My Shop"."t" ({columns})')
    id_column, key = [row[0] for row in db.query("select quote_ident(attname) from pg_attribute where attnum in (1, 2)"
                                                 " and attrelid = '\"My Shop\".t'::regclass order by attnum")]
    if indexed:
        db.query(f'create index on "My Shop".t ({key}, {id_column})')
    db.query(f'grant usage on schema "My Shop" to {OWNER_ROLE}; grant select, delete on "My Shop".t to {OWNER_ROLE}')
    for value in (one, other, "null", one, one, other):
        db.query(f'insert into "My Shop".t ({key}) values ({value})')
    owner(db, f"select outbox.queue_set('q', '\"My Shop\".t', {names}, after => 'archive')")
    worker = Worker(db, "q")
    rounds = []
    while taken := worker.take(10):
        rounds.append([event.id for event in taken])
        assert worker.done_all(event.token for event in taken) == len(taken)
    worker.close()
    assert rounds == [[1, 2, 3], [4, 6], [5]]
    assert db.query(f'select {id_column} from "My Shop".t') == [] and db.query("select * from outbox.parked") == []
    assert db.value("select count(*) from outbox.archive") == 6


def test_a_condition_leaves_other_rows_alone_and_two_queues_share_a_table(db):
    db.query(f"create table public.t (id bigserial primary key, k text, kind text); create index on public.t (k, id);"
             f" grant select, delete on public.t to {OWNER_ROLE}; insert into public.t (k, kind) values ('a', 'x'), ('a', 'y'), (null, 'y'), ('b', 'z')")
    for kind in "xy":
        owner(db, f"select outbox.queue_set('{kind}', 'public.t', key_column => 'k', payload_column => 'kind', condition => 'e.kind = ''{kind}''')")
    workers = {kind: Worker(db, kind) for kind in "xy"}
    taken = {kind: worker.take(10) for kind, worker in workers.items()}
    assert {kind: [event.id for event in events] for kind, events in taken.items()} == {"x": [1], "y": [2, 3]}
    for kind, worker in workers.items():
        assert worker.done_all(event.token for event in taken[kind]) == len(taken[kind])
        worker.close()
    assert db.query("select id from public.t") == [(4,)] and db.query("select * from outbox.parked") == []


def test_a_partitioned_table_is_worked_off(db):
    db.query("create sequence public.s; create table public.t (id bigint default nextval('public.s'), k text, part int, primary key (id, part)) partition by list (part);"
             " create table public.t1 partition of public.t for values in (1); create table public.t2 partition of public.t for values in (2);"
             f" create index on public.t (k, id); grant select, delete on public.t to {OWNER_ROLE};"
             " insert into public.t (k, part) select 'k' || n % 3, 1 + n % 2 from generate_series(1, 12) n")
    owner(db, "select outbox.queue_set('q', 'public.t', key_column => 'k')")
    worker = Worker(db, "q")
    seen = []
    while taken := worker.take(10):
        seen += [event.id for event in taken]
        assert worker.done_all(event.token for event in taken) == len(taken)
    worker.close()
    assert seen == list(range(1, 13)) and db.query("select * from public.t") == []


def test_an_id_that_comes_late_or_is_put_back_is_found(db, worker):
    add(db, "a")
    late = db.connect(autocommit=False)
    with late.cursor() as cursor:
        cursor.execute("insert into outbox.events (aggregateid) values ('late') returning id")
        late_id = cursor.fetchone()[0]
    marks = "select low > %s from outbox.take_mark order by moved_at desc limit 1"

    def passed():
        add(db, "b")
        worker.done_all(event.token for event in worker.take(100))
        return db.query(marks, (late_id,)) == [(True,)]

    wait_until(passed, what="the mark to pass the id")
    late.commit()
    late.close()
    found = []
    wait_until(lambda: found.extend(worker.take()) or found, what="the event that came late")
    assert found[0].id == late_id


@pytest.mark.parametrize("more", ["", ", priority_column => 'urgency'"], ids=["by id", "by priority"])
def test_an_id_that_comes_late_is_found_in_a_key_that_is_always_busy(db, worker, more):
    if more:
        db.query("alter table outbox.events add urgency int default 0; create index on outbox.events (urgency desc, id)")
        owner(db, f"select outbox.queue_set('tasks', key_column => 'aggregateid'{more})")
    late = db.connect(autocommit=False)
    with late.cursor() as cursor:
        cursor.execute("insert into outbox.events (aggregateid) values ('busy') returning id")
        late_id = cursor.fetchone()[0]
    add(db, *["busy"] * 20)

    def given():
        add(db, "busy")
        (event,) = worker.take()
        assert worker.done(event.token)
        return event.id

    wait_until(lambda: given() and db.value("select max(low) > %s from outbox.take_mark", (late_id,)), what="the mark to pass the id")
    late.commit()
    late.close()
    wait_until(lambda: given() == late_id, what="the event that came late", interval_s=0.01)


ENDS = {"failed": lambda worker, token: worker.fail(token), "released": lambda worker, token: worker.release(token), "over": lambda worker, token: True}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_what_is_put_back_in_front_of_a_leased_event_has_none_of_its_failures(db, worker, end):
    early, late = add(db, "a", "a")
    db.query("create table public.away as select * from outbox.events where id = %s; delete from outbox.events where id = %s", (early, early))
    for _ in range(2):
        (event,) = worker.take()
        assert event.id == late and worker.fail(event.token)
        over(db)
    (event,) = worker.take()
    assert (event.id, event.attempt) == (late, 3)
    db.query("insert into outbox.events overriding system value select * from public.away; update outbox.parked set event_id = %s", (early,))
    assert end(worker, event.token)
    if end is ENDS["over"]:
        over(db)
    (event,) = worker.take()
    assert (event.id, event.attempt) == (early, 1), "and it waits for nothing"
    assert worker.done(event.token) and worker.take()[0].id == late


@pytest.mark.parametrize("rule", ["dead_letter", "park"])
def test_what_is_given_up_is_the_leased_event_and_not_what_was_put_back_in_front(db, worker, rule):
    owner(db, f"select outbox.queue_set('tasks', on_exhausted => '{rule}')")
    early, late = add(db, "a", "a")
    db.query("create table public.away as select * from outbox.events where id = %s; delete from outbox.events where id = %s", (early, early))
    (event,) = worker.take()
    db.query("insert into outbox.events overriding system value select * from public.away; update outbox.parked set event_id = %s", (early,))
    assert worker.fail(event.token, "never", fatal=True)
    if rule == "park":
        assert db.query("select event_id, attempts, last_error, next_at::text from outbox.parked") == [(late, 1, "never", "infinity")]
    else:
        assert db.query("select event_id, attempts, reason from outbox.dead") == [(late, 1, "never")]
        assert [(event.id, event.attempt) for event in worker.take()] == [(early, 1)]


# ---- beside relays ----

@pytest.fixture
def config(db, tmp_path):
    def text(sink=None, base="1h"):
        return RELAY.format(dsn=db.dsn, base=base, sink=sink or f'type: file, path: "{tmp_path}/events.jsonl"')

    text.out = tmp_path / "events.jsonl"
    return text


def test_a_relay_leaves_a_leased_key_alone_and_takes_over_what_is_over(db, worker, config, relay):
    ids = add(db, "a", "b", "a", None)
    taken = worker.take(2, lease="1 hour")
    one = relay(config())
    wait_until(lambda: left(db) == [ids[0], ids[1], ids[2]], what="the relay to deliver what nobody has")
    assert worker.extend(taken[1].token)
    db.query("update outbox.parked set next_at = clock_timestamp() where taken_id = %s", (ids[0],))
    wait_until(lambda: left(db) == [ids[1]], what="the relay to take the key over")
    assert not worker.done(taken[0].token) and worker.done(taken[1].token)
    assert one.stop() == 0
    lines = config.out.read_text().splitlines()
    assert [('"attempt":2' in line) for line in lines if f'"id":{ids[0]},' in line] == [True]
    assert db.query("select * from outbox.parked") == []


def test_a_relays_failure_takes_the_token_and_its_wait_holds_for_workers(db, worker, config, relay, http):
    (event_id,) = add(db, "a")
    (event,) = worker.take()
    over(db)
    http.rule(lambda request: True, Reply(500))
    one = relay(config(f'type: http, url: "{http.url}"'))
    wait_until(lambda: db.value("select count(*) from outbox.parked where token is null and attempts >= 2") == 1, what="the relay to fail")
    assert one.stop() == 0
    assert not worker.done(event.token) and worker.take() == [] and left(db) == [event_id]
    over(db)
    assert worker.take()[0].attempt >= 3


def test_while_a_relay_delivers_what_a_lost_lease_had_its_verdict_changes_nothing(db, worker):
    ids = add(db, "a")
    (event,) = worker.take()
    over(db)
    relay_claim = db.connect(autocommit=False)  # what a claim holds: the key's lock
    relay_claim.cursor().execute("select pg_advisory_xact_lock(lock_class, hashtext('a')) from outbox.queue")
    for verdict in (worker.done, worker.fail, worker.extend, worker.release):
        assert not verdict(event.token)
    assert left(db) == ids
    relay_claim.rollback()  # it was stopped, and nobody has taken over
    relay_claim.close()
    assert worker.done(event.token) and left(db) == []


def test_a_verdict_in_time_counts_although_somebody_found_the_lock(db, worker):
    add(db, "a")
    (event,) = worker.take()
    claim = db.connect(autocommit=False)
    claim.cursor().execute("select pg_advisory_xact_lock(lock_class, hashtext('a')) from outbox.queue")
    assert worker.done(event.token) and left(db) == []
    claim.close()


def test_relay_and_queue_lock_the_same(db):
    """The class as relay/table/table.c reckons it, for ascii and other names."""
    db.query('create table public."Größe" (id bigserial primary key)')
    assert db.query("select outbox.lock_class_of('outbox.events'), outbox.lock_class_of('public.\"Größe\"')") == [
        (fnv("outbox.events"), fnv("public.Größe"))]


def fnv(name):
    number = 2166136261
    for byte in f"pgcourier:{name}".encode():
        number = ((number ^ byte) * 16777619) % 2**32
    return number - 2**32 if number >= 2**31 else number


def test_dead_letters_that_come_back_wait_for_the_worker_of_their_key(db, worker, config, tmp_path):
    ids = add(db, "a", "a")
    assert worker.fail(worker.take()[0].token, "never", fatal=True)
    (event,) = worker.take()
    path = tmp_path / "pgcourier.yaml"
    path.write_text(config().replace(db.dsn, db.operator_dsn))
    db.let_operator_in("outbox.events")
    assert run_command("dead", "retry", "--all", "-c", str(path)).returncode == 0
    assert left(db) == ids and worker.take() == []
    assert worker.done(event.token)
    (event,) = worker.take()
    assert event.id == ids[0] and worker.done(event.token) and left(db) == []


def test_a_term_that_extend_was_given_is_that_of_the_next_ones(db, worker):
    add(db, "a")
    (event,) = worker.take(lease="1 minute")
    for given in ("10 minutes", None, None):
        assert worker.extend(event.token, given)
        assert db.value("select expires_at between clock_timestamp() + interval '9 min' and clock_timestamp() + interval '10 min' from outbox.status_leases")


# ---- what is refused ----

REFUSED = [
    ("select outbox.take('nosuch')", "42704", "There are: tasks."),
    ("select outbox.take(null)", "42704", "There are: tasks."),
    ("select outbox.take('tasks', 0)", "22023", "lock table"),
    ("select outbox.take('tasks', 1001)", "22023", "lock table"),
    ("select outbox.take('tasks', null)", "22023", "lock table"),
    ("select outbox.take('tasks', 1, 'w', '0 s')", "22023", "1 minute"),
    ("select outbox.take('tasks', 1, 'w', '-1 s')", "22023", "1 minute"),
    ("select outbox.take('tasks', 1, 'w', '31 days')", "22023", "1 minute"),
    ("select outbox.take('tasks', 1, 'w', null)", "22023", "1 minute"),
    ("select outbox.done(null)", "22004", "take()"),
    ("select outbox.done_all(null)", "22004", "take()"),
    ("select outbox.done_all(array[null]::uuid[])", "22004", "take()"),
    ("select outbox.done_all(array_fill(gen_random_uuid(), array[1001]))", "22023", "lock table"),
    ("select outbox.fail(null, 'x')", "22004", "take()"),
    ("select outbox.extend(null)", "22004", "take()"),
    ("select outbox.extend(gen_random_uuid(), '0')", "22023", "1 minute"),
    ("select outbox.release(null)", "22004", "take()"),
    ("begin isolation level repeatable read; select outbox.take('tasks')", "25000", "read committed"),
    ("begin read only; select outbox.take('tasks')", "25006", "read write"),
    ("begin read only; select outbox.done(gen_random_uuid())", "25006", "read write"),
    ("begin isolation level serializable; select outbox.done(gen_random_uuid())", "25000", "read committed"),
]


@pytest.mark.parametrize("call, code, hint", REFUSED, ids=[row[0] for row in REFUSED])
def test_a_wrong_call_has_a_code_and_a_hint_and_changes_nothing(db, worker, call, code, hint):
    add(db, "a")
    before = db.query("select xmin, p.* from outbox.parked p")
    with pytest.raises(psycopg2.Error) as refused:
        worker.connection.cursor().execute(call)
    assert refused.value.pgcode == code and hint in refused.value.diag.message_hint and len((refused.value.diag.context or "").splitlines()) < 5
    assert db.query("select xmin, p.* from outbox.parked p") == before and left(db) == [1]


UNFIT = [
    ("'', 'public.t'", "22004"),
    ("'q', 'public.t', 'nosuch'", "42703"),
    ("'q', 'public.t', key_column => 'K'", "42703"),
    ("'q', 'public.t', 'k'", "42804"),
    ("'q', 'public.t', key_column => 'n'", "42804"),
    ("'q', 'public.v'", "42809"),
    ("'q', 'public.t', 'other'", "55000"),
    ("'q', 'public.secret'", "42501"),
    ("'q', 'public.t', condition => 'nosuch = 1'", "42703"),
    (f"'{'q' * 201}', 'public.t'", "22023"),
    ("null", "22004"),
    ("'q', null", "22004"),
    ("'q', 'public.t', condition => 'true) or (true'", "42601"),
    ("'q', 'public.t', condition => 'true -- all of them'", "42601"),
    ("'q', 'public.t', condition => 'true limit 1'", "42601"),
    ("'q', 'public.t', condition => 'k <> ''$$'''", "22023"),
    ("'a$$q', 'public.t'", "22023"),
    ("'q', 'public.t', condition => 'k'", "42804"),
    *[(f"'q', 'public.t', {argument}", "22023") for argument in (
        "max_attempts => 0", "max_attempts => null", "retry_base => '0 s'", "retry_base => null", "retry_base => '2 days', retry_max => '3 days'",
        "retry_base => '1 h', retry_max => '1 s'", "retry_max => null", "retry_max => '8 days'", "on_exhausted => 'drop'", "on_exhausted => null",
        "after => 'keep'", "after => null", "delayed => 'wait'", "delayed => null", "then_payload => 'both'", "then_payload => null")],
    ("'q'", "55000"),  # the table of "tasks"
    ("'q', condition => 'true'", "55000"),
    ("'tasks', lock_class => 5", "55006"),  # a worker has an event
]


@pytest.mark.parametrize("arguments, code", UNFIT, ids=[row[0] for row in UNFIT])
def test_what_cannot_be_a_queue_is_refused(db, worker, arguments, code):
    db.query(f"create table public.t (id bigserial primary key, k text, n numeric, other bigint); create view public.v as select * from public.t;"
             f" create table public.secret (id bigserial primary key); grant select, delete on public.t, public.v to {OWNER_ROLE}")
    add(db, "a")
    worker.take()
    before = db.query("select * from outbox.queue")
    with pytest.raises(psycopg2.Error) as refused:
        owner(db, f"select outbox.queue_set({arguments})")
    assert refused.value.pgcode == code and refused.value.diag.message_hint and db.query("select * from outbox.queue") == before


def test_a_row_that_its_table_keeps_is_an_error_and_stays_leased(db, worker):
    db.query("create function public.keep() returns trigger language plpgsql as 'begin return null; end';"
             " create trigger keep before delete on outbox.events for each row execute function public.keep()")
    ids = add(db, "a")
    (event,) = worker.take()
    with pytest.raises(psycopg2.errors.ObjectNotInPrerequisiteState, match="event 1 is still in outbox.events"):
        worker.done(event.token)
    assert left(db) == ids and db.value("select count(*) from outbox.status_leases") == 1


@pytest.mark.parametrize("verdict", ["done", "fatal", "lost"])
def test_an_event_that_is_updated_while_it_is_ended_is_ended(db, worker, verdict):
    """An application changes its priority, say, and commits while a verdict, or who finds the last lease over, waits for the row."""
    owner(db, "select outbox.queue_set('tasks', max_attempts => 1)")
    add(db, "a")
    (event,) = worker.take()
    application = db.connect(autocommit=False)
    application.cursor().execute("update outbox.events set type = 'changed'")
    if verdict == "lost":
        over(db)
    end = {"done": lambda: worker.done(event.token), "fatal": lambda: worker.fail(event.token, fatal=True), "lost": lambda: worker.take() == []}[verdict]
    with ThreadPoolExecutor() as pool:
        ended = pool.submit(end)
        wait_until(lambda: db.value("select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'") == 1)
        application.commit()
        assert ended.result() is True
    application.close()
    assert left(db) == [] and db.value("select count(*) from outbox.parked") == 0
    assert db.query("select original ->> 'type' from outbox.dead") == ([] if verdict == "done" else [("changed",)])


@pytest.mark.parametrize("notes", ["public.notes", "hidden.notes"])  # the owner of the schema may not use the other
@pytest.mark.parametrize("deferred", ["", " deferrable initially deferred"])
def test_a_row_that_cannot_go_closes_its_key_when_its_last_lease_is_over_and_holds_up_no_other(db, worker, deferred, notes):
    db.query("create schema hidden")
    owner(db, "select outbox.queue_set('tasks', max_attempts => 2)")
    ids = add(db, "a", "b")
    db.query(f"create table {notes} (event_id bigint references outbox.events{deferred}); insert into {notes} values ({ids[0]})")
    for attempt in (1, 2):
        assert [(event.id, event.attempt) for event in worker.take(5)] == [(id_, attempt) for id_ in ids]
        over(db)
    assert worker.take(5) == [] and left(db) == ids[:1]
    assert [row[:2] for row in db.query("select event_id, reason from outbox.dead")] == [(ids[1], "the lease of worker ran out")]
    ((key, attempts, error),) = db.query("select key, attempts, last_error from outbox.parked where next_at = 'infinity' and token is null")
    assert (key, attempts) == ("a", 2) and "foreign key" in error
    db.query(f"drop table {notes}; update outbox.parked set next_at = now(), attempts = 0")
    (event,) = worker.take(5)
    assert event.id == ids[0] and worker.done(event.token)


def test_what_a_worker_has_put_off_until_its_commit_closes_no_key_and_stays_put_off(db, worker):
    owner(db, "select outbox.queue_set('tasks', max_attempts => 1)")
    (lost,) = add(db, "a")
    db.query("create table public.parents (id int primary key);"
             f" create table public.children (id int references public.parents deferrable initially deferred); grant all on public.parents, public.children to {WORKER_ROLE}")
    assert worker.take()
    over(db)
    with db.connect(user=WORKER_ROLE, autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("insert into public.children values (1); select from outbox.take('tasks'); insert into public.children values (2);"
                       " insert into public.parents values (1), (2)")
    assert db.query("select event_id, reason from outbox.dead") == [(lost, "the lease of worker ran out")]
    assert left(db) == [] and db.value("select count(*) from outbox.parked") == 0


@pytest.mark.parametrize("other", ["", " deferrable initially immediate"])
def test_a_constraint_that_shares_its_name_with_a_deferred_one_of_the_queues_table_stays_as_it_is(db, worker, other):
    owner(db, "select outbox.queue_set('tasks', max_attempts => 1)")
    (lost,) = add(db, "a")
    db.query("create table public.invoices (event_id bigint constraint refers references outbox.events deferrable initially deferred);"
             f" create table public.parents (id int primary key); grant all on public.parents to {WORKER_ROLE};"
             f" create table public.notes (id int constraint refers references public.parents{other}); grant all on public.notes to {WORKER_ROLE}")
    assert worker.take()
    over(db)
    with db.connect(user=WORKER_ROLE, autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("select from outbox.take('tasks')")
        with pytest.raises(psycopg2.errors.ForeignKeyViolation):
            cursor.execute("insert into public.notes values (1)")
    assert worker.take() == [] and db.query("select event_id, reason from outbox.dead") == [(lost, "the lease of worker ran out")]


def test_a_dropped_queue_is_unknown_and_leaves_nothing_behind(db, worker):
    add(db, "a")
    (event,) = worker.take()
    owner(db, "select outbox.queue_drop('tasks')")
    with pytest.raises(psycopg2.errors.UndefinedObject):
        worker.take()
    assert not worker.done(event.token)
    assert db.query("select proname from pg_proc where proname ~ '^queue_[0-9]'") == []
    owner(db, "select outbox.queue_set('tasks')")
    assert worker.done(event.token)
    with pytest.raises(psycopg2.errors.UndefinedObject) as refused:
        owner(db, "select outbox.queue_drop('nosuch')")
    assert refused.value.diag.message_primary == "queue_drop: there is no queue 'nosuch'"
    assert refused.value.diag.message_hint == "There are: tasks."


# ---- what is paused ----

def test_a_paused_queue_and_a_paused_key_give_nothing_out_and_take_verdicts(db, worker):
    ids = add(db, "a", "a", "b")
    (event,) = worker.take()
    db.query("select outbox.pause('tasks', 'a')")
    (other,) = worker.take(5)
    assert other.id == ids[2] and worker.done(other.token)
    assert worker.extend(event.token) and worker.done(event.token) and worker.take(5) == []
    db.query("select outbox.pause('tasks')")
    db.query("select outbox.resume('tasks', 'a')")
    assert worker.take(5) == []
    db.query("select outbox.resume('tasks')")
    (event,) = worker.take(5)
    assert event.id == ids[1]
    db.query("select outbox.pause('tasks', 'a')")
    assert worker.fail(event.token) and worker.take(5) == []
    db.query("select outbox.resume('tasks', 'a')")
    over(db)
    assert [(event.id, event.attempt) for event in worker.take(5)] == [(ids[1], 2)]
