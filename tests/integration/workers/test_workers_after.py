"""Workers obey what an event comes after, by the rule of the relays (test_after.py), beside them and without them."""

import psycopg2
import pytest

from tests.support.noted import Noted
from tests.support.postgres import OWNER_ROLE
from tests.support.servers import Reply, run_command, wait_until
from tests.support.targets import http_receipts
from tests.support.workers import Worker

CONFIG = """
database: "{db}"
sinks: {{ web: {{ type: http, url: "{url}" }} }}
queues:
  jobs: {{ table: public.jobs, columns: {{ {columns}payload: body }}, sink: web{more} }}
"""


def queue_set(db, arguments="key_column => 'k', payload_column => 'body', after_column => 'after_ids'"):
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('jobs', 'public.jobs', {arguments})")


@pytest.fixture
def worker(db):
    db.psql("create table public.jobs (id bigserial primary key, k text, body jsonb, after_ids bigint[]); create index on public.jobs (k, id)")
    db.query(f"grant select, delete on public.jobs to {OWNER_ROLE}")
    queue_set(db)
    one = Worker(db, "jobs")
    yield one
    one.close()


def add(db, key, after=()):
    return db.value("insert into public.jobs (k, body, after_ids) values (%s, '{}', %s) returning id", [key, list(after) or None])


def waits(db):
    return db.query("select event_id, after_id from outbox.parked where after_id is not null order by event_id")


def left(db):
    return [row[0] for row in db.query("select id from public.jobs order by id")]


def take(worker, count=10):
    """The next that there are; what has just been done is noticed within 200 ms."""
    taken = []
    wait_until(lambda: taken.extend(worker.take(count)) or taken, what="something to take", interval_s=0.01)
    return taken


def work_off(db, worker):
    """Rounds of ids, each taken when all before was done."""
    rounds = []
    while left(db):
        taken = take(worker)
        rounds.append([event.id for event in taken])
        assert worker.done_all(event.token for event in taken) == len(taken)
    return rounds


# ---- the rule ----

@pytest.mark.parametrize("keyed", [True, False], ids=["keys", "no keys"])
@pytest.mark.parametrize("kind", ["bigint", "int", "bigint[]", "int[]"])
def test_an_event_waits_for_those_that_it_names(db, worker, kind, keyed):
    db.psql(f"alter table public.jobs drop after_ids; alter table public.jobs add after_ids {kind}")
    queue_set(db, "after_column => 'after_ids', after => 'archive'" + (", key_column => 'k'" if keyed else ""))
    value = "array[{0}]" if kind.endswith("[]") else "{0}"
    db.query(f"insert into public.jobs (k, after_ids) values ('a', {value.format(2)}), ('b', {value.format(3)}), ('c', null), ('d', {value.format(9)})")
    assert work_off(db, worker) == [[3, 4], [2], [1]]
    assert db.query("select * from outbox.parked") == [], "what is in the archive is done"


def test_what_waits_holds_its_key_and_no_other(db, worker):
    first = add(db, "z")
    add(db, "a", [first]), add(db, "a"), add(db, None, [first]), add(db, None), add(db, "b")
    taken = worker.take(10)
    assert [event.id for event in taken] == [1, 5, 6] and waits(db) == [(2, 1), (4, 1)]
    assert worker.release(taken[0].token) and worker.take(1)[0].id == 1
    assert worker.take(10) == []
    assert db.value("select outbox.look_again('jobs')") == 2 and worker.take(10) == [], "it is leased, and so it is not done"
    assert worker.fail(db.value("select token from outbox.parked where taken_id = 1"), "no")
    assert db.value("select outbox.look_again('jobs')") == 2
    db.query("update outbox.parked set next_at = now() where attempts > 0")
    assert [event.id for event in take(worker)] == [1], "nor is it while it waits for its next attempt"
    assert worker.done(db.value("select token from outbox.parked where taken_id = 1"))
    assert worker.done_all(event.token for event in taken[1:]) == 2
    assert work_off(db, worker) == [[2, 4], [3]]


def test_a_dead_letter_is_not_done_until_it_is_put_back_or_dropped(db, worker, tmp_path):
    add(db, "a"), add(db, "b"), add(db, "c", [1]), add(db, "d", [2]), add(db, "a", [1])
    for event in worker.take(2):
        assert worker.fail(event.token, "never", fatal=True)
    assert worker.take(10) == [] and waits(db) == [(3, 1), (4, 2), (5, 1)]
    assert db.query("select what, key, event_id, error from outbox.stuck order by event_id")[0] == ("after", "c", 3, "waits for event 1, a dead letter")
    db.let_operator_in("public.jobs")
    path = tmp_path / "operator.yaml"
    path.write_text(CONFIG.format(db=db.operator_dsn, url="http://localhost", columns="key: k, after: after_ids, ", more=""))
    assert run_command("dead", "drop", "-c", str(path), "--key", "b").returncode == 0
    assert [event.id for event in take(worker)] == [4]
    assert run_command("dead", "retry", "-c", str(path), "--key", "a").returncode == 0
    (event,) = take(worker)
    assert event.id == 1 and worker.done(event.token)
    freed = []
    wait_until(lambda: freed.extend(event.id for event in worker.take(10)) or len(freed) == 2, what="the two that waited")
    assert sorted(freed) == [3, 5]


RINGS = {"itself": [("a", [1])], "two": [("a", [2]), ("b", [1])], "in a key": [("a", [2]), ("a", [])]}


@pytest.mark.parametrize("name", RINGS)
def test_events_that_wait_for_each_other_are_shown_and_written_once(db, worker, name):
    for key, after in RINGS[name]:
        add(db, key, after)
    other = add(db, "z")
    (event,) = worker.take(10)
    assert event.id == other and worker.done(event.token)
    assert len(waits(db)) == sum(bool(after) for _, after in RINGS[name])
    written = db.query("select xmin, p.* from outbox.parked p")
    moved = db.value("select max(moved_at) from outbox.take_mark")
    wait_until(lambda: worker.take(10) == [] and db.value("select max(moved_at) > %s + interval '1 s' from outbox.take_mark", [moved]))
    assert db.query("select xmin, p.* from outbox.parked p") == written
    db.query("update public.jobs set after_ids = null; select outbox.look_again('jobs')")
    assert sum(map(len, work_off(db, worker))) == len(RINGS[name])


def test_names_of_the_same_key_that_go_first_anyway_cost_no_wait(db, worker):
    for n in range(5):
        add(db, "a", [n] if n else ())
    for n in range(1, 6):
        (event,) = worker.take(10)
        assert event.id == n and worker.done(event.token)


def test_a_condition_counts_for_what_is_named_too(db, worker):
    """As for relays: what the queue does not deliver is not waited for."""
    queue_set(db, "key_column => 'k', after_column => 'after_ids', condition => 'body is not null'")
    db.query("insert into public.jobs (k, body, after_ids) values ('a', null, null), ('b', '{}', '{1}'), ('c', '{}', '{2}')")
    assert [event.id for event in worker.take(10)] == [2]


@pytest.mark.parametrize("delayed", ["hold", "pass"])
def test_what_is_not_due_is_not_done_and_waits_for_its_time_first(db, worker, delayed):
    db.psql("alter table public.jobs add due timestamptz")
    queue_set(db, f"key_column => 'k', after_column => 'after_ids', not_before_column => 'due', delayed => '{delayed}'")
    db.query("insert into public.jobs (k, due, after_ids) values ('a', now() + interval '1 h', null), ('b', null, '{1}'), ('c', now() + interval '1 h', '{1}')")
    assert worker.take(10) == []
    assert waits(db) == [(2, 1)]
    db.query("update public.jobs set due = now(); select outbox.look_again('jobs')")
    (event,) = take(worker)
    assert event.id == 1 and worker.take(10) == []
    assert worker.done(event.token) and work_off(db, worker) == [[2, 3]]


def test_a_paused_key_that_waits_goes_on_when_both_are_over(db, worker):
    add(db, "a"), add(db, "b", [1])
    (event,) = worker.take(10)
    assert worker.take(10) == [] and waits(db) == [(2, 1)]
    db.query("select outbox.pause('jobs', 'b')")
    assert worker.done(event.token)
    moved = db.value("select max(moved_at) from outbox.take_mark")
    wait_until(lambda: worker.take(10) == [] and db.value("select max(moved_at) > %s from outbox.take_mark", [moved]))
    db.query("select outbox.resume('jobs', 'b')")
    assert [event.id for event in take(worker)] == [2]


def test_a_call_waits_for_no_entry_that_somebody_has_locked(db, worker):
    """Two calls that have each woken what the other leases would end in a deadlock."""
    add(db, "a"), add(db, "b"), add(db, None)
    assert [worker.release(event.token) for event in worker.take(10)] == [True] * 3
    other = db.connect(autocommit=False)
    other.cursor().execute("select from outbox.parked where event_id in (1, 3) for update")
    worker.connection.cursor().execute("set lock_timeout = '2s'")
    (event,) = worker.take(10)
    assert event.id == 2 and worker.take(10) == []
    other.rollback()
    assert sorted(event.id for event in take(worker)) == [1, 3]


# ---- many ----

def test_what_can_be_taken_behind_many_that_wait_is_found_at_once(db, worker):
    first = add(db, "first")
    (event,) = worker.take(1)
    db.query(f"insert into public.jobs (k, after_ids) select 'k' || n, '{{{first}}}' from generate_series(1, 800) n")
    last = [add(db, "last"), add(db, "very last")]
    (taken,) = worker.take(1)
    assert taken.id == last[0], "one call has put 800 aside"
    assert len(waits(db)) == 800
    assert [event.id for event in worker.take(1)] == last[1:], "and has kept nobody's lock"
    assert worker.done(event.token)
    seen = []
    wait_until(lambda: seen.extend(event.id for event in worker.take(100)) or len(seen) == 800)
    assert len(set(seen)) == 800 and waits(db) == []


@pytest.mark.parametrize("distinct", [False, True], ids=["of one", "each of another"])
def test_a_take_costs_the_same_however_many_wait(db, worker, distinct):
    """Counted in rows, not in time: nothing is read that grows with the waits or the archive."""
    waiting = 10000
    ids = "n + 100000" if distinct else "100001"
    db.query(f"""insert into public.jobs (id, k, after_ids) select n, 'k' || n, array[{ids}] from generate_series(1, {waiting}) n;
        insert into public.jobs (id, k) select n + 100000, 'named' from generate_series(1, {waiting}) n;
        insert into outbox.parked (queue, key, event_id, next_at, after_id) select 'jobs', 'k' || n, n, now() + interval '1 h', {ids} from generate_series(1, {waiting}) n;
        insert into outbox.parked (queue, key, event_id, next_at) values ('jobs', 'named', 100001, 'infinity');
        select outbox.archive_prepare(1); insert into outbox.archive (queue, event_id, original) select 'jobs', -n, '{{}}' from generate_series(1, {waiting}) n;
        insert into public.jobs (id, k) values (200000, 'free'); analyze""")
    (event,) = take(worker)
    assert event.id == 200000
    wait_until(lambda: worker.take(10) == [] and db.value("select max(low) from outbox.take_mark") >= 200000, what="the mark to pass what waits")
    read = []
    for _ in range(5):  # each of them moves the marks and wakes who may go on
        rows = db.query("""update outbox.take_mark set due_at = '-infinity'; select outbox.take('jobs', 10);
            select relname, sum(seq_tup_read + idx_tup_fetch) from pg_stat_xact_all_tables where schemaname in ('outbox', 'public') group by 1""")
        read.append({name: int(count or 0) for name, count in rows})
    assert max(row["jobs"] for row in read) < 3000 and max(row["parked"] for row in read) < 3000, read
    assert not any(row["archive"] + row["archive_default"] for row in read)


def test_many_that_wait_for_one_are_woken_by_and_by(db, worker):
    db.query("""insert into public.jobs (k, after_ids) select 'k' || n, '{-1}' from generate_series(1, 12000) n;
        insert into outbox.parked (queue, key, event_id, next_at, after_id) select 'jobs', 'k' || n, n, now() + interval '1 h', -1 from generate_series(1, 12000) n""")
    (first,) = take(worker, 1)
    assert len(waits(db)) == 7000 and worker.done(first.token)
    wait_until(lambda: [worker.done(event.token) for event in worker.take(1)] and waits(db) == [])


# ---- beside relays ----

@pytest.mark.parametrize("ordering", ["per_key", "lease", "unordered"])
def test_workers_and_relays_wait_for_each_others_events(db, worker, relay, http, ordering):
    db.let_relay_in("public.jobs")
    if ordering == "unordered":
        queue_set(db, "payload_column => 'body', after_column => 'after_ids'")
    noted = Noted(db, "public.jobs", key="k")
    add(db, "a"), add(db, "b", [1])
    (event,) = worker.take(1)
    locks = ", locks: advisory" if ordering == "unordered" else ""
    one = relay(CONFIG.format(db=db.dsn, url=http.url, columns="key: k, after: after_ids, ", more=f", ordering: {ordering}{locks}, retry: {{ base: 1h, max: 1h }}"),
                until_empty=False)
    wait_until(lambda: waits(db) == [(2, 1)])
    assert worker.done(event.token)
    wait_until(lambda: left(db) == [])
    http.respond = lambda request: Reply(500)
    third = add(db, "c")
    fourth = add(db, "d", [third])
    wait_until(lambda: db.value("select count(*) from outbox.parked where attempts = 1 and last_error <> ''") == 1)
    wait_until(lambda: (fourth, third) in waits(db), what="the other to wait for it")
    assert worker.take(10) == []
    assert one.stop() == 0
    db.query("update outbox.parked set next_at = now() where attempts = 1")
    (event,) = take(worker)
    assert (event.id, event.attempt) == (third, 2) and worker.done(event.token)
    (event,) = take(worker)
    assert event.id == fourth and worker.done(event.token)
    if ordering != "unordered":  # which has no keys for workers
        noted.check(http_receipts(http) + worker.receipts)


@pytest.mark.parametrize("workers, relays, agreed", [
    ("after_column => 'after_ids'", "after: after_ids, ", True), ("", "after: after_ids, ", False), ("after_column => 'after_ids'", "", False)])
def test_workers_and_relays_have_to_agree_on_the_column(db, worker, tmp_path, workers, relays, agreed):
    db.let_relay_in("public.jobs")
    queue_set(db, ", ".join(filter(None, ["key_column => 'k'", workers])))
    path = tmp_path / "pgcourier.yaml"
    path.write_text(CONFIG.format(db=db.dsn, url="http://localhost", columns="key: k, " + relays, more=""))
    done = run_command("check-config", "-c", str(path), "--database")
    assert done.returncode == (0 if agreed else 78), done
    if not agreed:
        name = "'after_ids'" if relays else "NULL"
        assert ("workers take events of queue jobs with another after (outbox.queue): they and relays would not wait for the same events"
                f"  fix: select outbox.queue_set('jobs', ..., after_column => {name});") in done.stdout


# ---- what is refused ----

@pytest.mark.parametrize("column, code, hint", [
    ("nosuch", "42703", "exactly"), ("k", "42804", "bigint[], bigint, integer[] or integer"), ("body", "42804", "bigint[], bigint, integer[] or integer")])
def test_a_column_that_holds_no_ids_is_refused(db, worker, column, code, hint):
    before = db.query("select * from outbox.queue")
    with pytest.raises(psycopg2.Error) as refused:
        queue_set(db, f"key_column => 'k', after_column => '{column}'")
    assert refused.value.pgcode == code and hint in refused.value.diag.message_hint
    assert db.query("select * from outbox.queue") == before


def test_the_outbox_may_have_the_column_too_and_keeps_its_others(db):
    db.psql("alter table outbox.events add after_ids bigint[]")
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('tasks', after_column => 'after_ids')")
    db.query("insert into outbox.events (aggregateid, payload, after_ids) values ('a', '{}', '{2}'), ('b', '{\"n\": 2}', null)")
    worker = Worker(db, "tasks")
    assert [(event.id, event.key, event.payload) for event in worker.take(10)] == [(2, "b", '{"n": 2}')]
    worker.close()
