"""Workers take what is urgent first, as relays of an `unordered` queue do (test_rows_unordered.py), and for keys, too."""

import time

import psycopg2
import pytest

from tests.support.noted import Noted
from tests.support.postgres import OWNER_ROLE
from tests.support.servers import run_command, wait_until
from tests.support.tasks import Tasks
from tests.support.workers import Worker

KEYED = "key_column => 'k', "


def queue_set(db, arguments=""):
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('jobs', 'public.jobs', {arguments}priority_column => 'urgency')")


@pytest.fixture
def worker(db):
    db.psql("create table public.jobs (id bigserial primary key, k text, urgency int, due timestamptz, after_ids bigint[]) with (autovacuum_enabled = off);"
            "create index on public.jobs (k, id); create index urgent on public.jobs (urgency desc, id)")
    db.query(f"grant select, delete on public.jobs to {OWNER_ROLE}")
    queue_set(db)
    one = Worker(db, "jobs")
    yield one
    one.close()


def add(db, *urgencies, key=None):
    return [row[0] for row in db.query("insert into public.jobs (k, urgency) select %s, u from unnest(%s::int[]) with ordinality t (u, n) order by n returning id",
                                       (key, list(urgencies)))]


def fill(db, count, urgency=0, keyed=False):
    db.query("insert into public.jobs (k, urgency) select case when %s then 'k' || n end, %s from generate_series(1, %s) n", (keyed, urgency, count))


def ids(taken):
    return [event.id for event in taken]


@pytest.mark.parametrize("kind", ["int", "bigint", "smallint"])
def test_the_most_urgent_go_first_then_the_oldest(db, worker, kind):
    db.psql(f"alter table public.jobs alter urgency type {kind}")
    queue_set(db)
    given = add(db, 0, 5, -3, None, 5, 9)
    assert ids(worker.take(10)) == [given[5], given[1], given[4], given[0], given[2], given[3]]


@pytest.mark.parametrize("keyed", [False, True], ids=["no keys", "keys"])
def test_behind_a_backlog_urgent_events_are_found_by_the_index(db, worker, keyed):
    queue_set(db, KEYED if keyed else "")
    fill(db, 5000, keyed=keyed)
    given = add(db, 7, 9, key="a")[::-1] if not keyed else add(db, 9, key="a") + add(db, 7, key="b")
    fill(db, 5000, keyed=False)
    assert ids(worker.take(10))[:2] == given
    taken = []
    later = add(db, 8, 8, 8)
    wait_until(lambda: taken.extend(ids(worker.take(1))) or set(later) <= set(taken), what="what came later and is more urgent than all that is left")
    assert worker.take(1)[0].id < 5000, "nothing urgent is left"


def test_a_priority_that_is_raised_is_found_at_the_next_look_from_the_top(db, worker):
    fill(db, 5000)
    assert ids(worker.take(1))
    db.query("update public.jobs set urgency = 3 where id in (4990, 4991)")
    taken = []
    wait_until(lambda: taken.extend(ids(worker.take(1))) or {4990, 4991} <= set(taken))
    assert len(taken) < 4000


def test_only_the_head_of_a_key_counts(db, worker):
    queue_set(db, KEYED)
    fill(db, 3000, 1, keyed=True)
    slow, first = add(db, 0, 9, key="slow")[0], add(db, 3, 0, key="a")[0]
    hot = add(db, 5, key="b")[0]
    taken = ids(worker.take(20))
    assert taken[:2] == [hot, first] and slow not in taken, "what is urgent behind it does not make it so"


def test_the_next_head_of_a_key_goes_by_its_own_priority(db, worker):
    """Its key has an entry of a wait that is over, as thousands may have, and does not take their turn."""
    queue_set(db, KEYED)
    (one, urgent) = add(db, 9, 8, key="a")
    fill(db, 10000, keyed=True)
    db.query("insert into outbox.parked (queue, key, event_id, next_at) select 'jobs', 'k' || n, 0, now() from generate_series(1, 5000) n")
    (event,) = [event for event in worker.take(4) if event.id == one]
    assert worker.done(event.token)
    taken = []
    wait_until(lambda: taken.extend(ids(worker.take(4))) or urgent in taken)
    assert len(taken) < 4000


def test_of_ten_taken_one_is_the_oldest_and_up_to_a_quarter_have_waited(db, worker):
    """So nobody starves, whatever comes; with calls for one as for many."""
    for count, calls in ((1, 400), (4, 100), (50, 8)):
        db.query("delete from public.jobs; delete from outbox.parked")
        fill(db, 1000, -1)
        fill(db, 3000, 5)
        db.query("insert into outbox.parked (queue, key, event_id, keyless, attempts, next_at) select 'jobs', '', id, true, 1, now() from public.jobs where urgency = -1 order by id desc limit 500")
        oldest = {row[0] for row in db.query("select id from public.jobs where urgency = -1 order by id limit 500")}
        waited = {row[0] for row in db.query("select event_id from outbox.parked")}
        seen = [event_id for _ in range(calls) for event_id in ids(worker.take(count))]
        assert len(seen) == count * calls
        assert 0.02 < len(oldest & set(seen)) / len(seen) < 0.2
        assert 0.1 < len(waited & set(seen)) / len(seen) < 0.35
        assert sorted(oldest & set(seen)) == sorted(oldest)[:len(oldest & set(seen))], "the oldest first"


@pytest.mark.parametrize("delayed", ["hold", "pass"])
def test_what_waits_at_the_top_hides_nothing_and_is_found_when_it_is_due(db, worker, delayed):
    queue_set(db, f"key_column => 'k', not_before_column => 'due', delayed => '{delayed}', ")
    db.query("insert into public.jobs (k, urgency, due) select 'd' || n, 9, now() + interval '1 h' from generate_series(1, 5000) n")
    fill(db, 5000, keyed=True)
    behind = add(db, 3, 2, key=None)
    taken = []
    wait_until(lambda: taken.extend(ids(worker.take(1))) or behind[0] in taken, what="the most urgent that is due")
    assert all(event_id > 5000 for event_id in taken)
    db.query("update public.jobs set due = now() where id = 4321; select outbox.look_again('jobs')")
    wait_until(lambda: taken.extend(ids(worker.take(1))) or 4321 in taken, what="what has become due")


@pytest.mark.parametrize("keyed", [False, True], ids=["no keys", "keys"])
def test_everything_is_taken_once_and_nothing_is_left(db, worker, keyed):
    queue_set(db, KEYED if keyed else "")
    noted = Noted(db, "public.jobs", key="k")
    db.query("insert into public.jobs (k, urgency) select case when %s then 'k' || n %% 37 end, case when n %% 11 > 0 then n %% 7 end from generate_series(1, 1500) n", (keyed,))
    others = [Worker(db, "jobs", f"worker-{n}") for n in range(3)]
    seen = []

    def turn():
        for one in (worker, *others):
            taken = one.take(40)
            assert len(set(event.key for event in taken)) == len(taken) or not keyed
            seen.extend(taken)
            assert one.done_all(event.token for event in taken) == len(taken)
        return len(seen) == 1500

    wait_until(turn)
    assert sorted(ids(seen)) == list(range(1, 1501)) and db.query("select * from outbox.parked") == []
    for key in {event.key for event in seen} if keyed else ():
        of_key = [event.id for event in seen if event.key == key]
        assert of_key == sorted(of_key)
    noted.check([receipt for one in (worker, *others) for receipt in one.receipts])
    for one in others:
        one.close()


READ = """select relname, sum(seq_tup_read + idx_tup_fetch)::int from pg_stat_xact_all_tables
    where schemaname in ('outbox', 'public') and relname in ('jobs', 'parked') group by 1"""


@pytest.mark.parametrize("keyed", [False, True], ids=["no keys", "keys"])
@pytest.mark.parametrize("plans", [pytest.param("analyzed", marks=pytest.mark.deep), "blind", pytest.param("kept", marks=pytest.mark.deep)])
def test_a_take_costs_the_same_however_many_there_are(db, worker, plans, keyed):
    """Counted in rows, not in time: with the statistics of a full table, with those of an empty one that has since been
    filled, and with plans that a session has kept from then."""
    queue_set(db, KEYED if keyed else "")
    connection = db.connect(autocommit=False)
    cursor = connection.cursor()
    db.psql("vacuum analyze public.jobs; vacuum analyze outbox.parked")
    for _ in range(10 if plans == "kept" else 0):
        cursor.execute("select outbox.take('jobs', 10)")
        connection.commit()
    many = 60000
    fill(db, many // 2, 9, keyed), fill(db, many, 0, keyed)
    db.query("update public.jobs set k = 'u' || id where urgency = 9 and k is not null")
    db.query("insert into outbox.parked (queue, key, event_id, keyless, next_at) select 'jobs', coalesce(k, ''), id, k is null, now() + interval '1 h' from public.jobs where urgency = 9")
    if plans == "analyzed":
        db.query("analyze")
    read, before = [], {}
    for _ in range(20):
        cursor.execute("select outbox.take('jobs', 10)")
        cursor.execute(READ)  # since the transaction began
        now = dict(cursor.fetchall())
        read.append({name: now[name] - before.get(name, 0) for name in now})
        before = now
        time.sleep(0.05)  # the marks move with time: 20 calls see each of their moves
    connection.commit()
    connection.close()
    assert max(row["jobs"] for row in read) < 20000 and max(row["parked"] for row in read) < 20000, read
    taken = []
    urgent = add(db, 5)
    wait_until(lambda: taken.extend(ids(worker.take(1))) or set(urgent) <= set(taken), what="what is urgent behind 30,000 that wait", timeout_s=60)


# ---- what is refused, and what has to agree ----

@pytest.mark.parametrize("column, code, hint", [("nosuch", "42703", "exactly"), ("k", "42804", "bigint, integer or smallint"),
                                                ("due", "42804", "bigint, integer or smallint"), ("after_ids", "42804", "bigint, integer or smallint")])
def test_a_column_that_is_no_priority_is_refused(db, worker, column, code, hint):
    before = db.query("select * from outbox.queue")
    with pytest.raises(psycopg2.Error) as refused:
        db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('jobs', 'public.jobs', priority_column => '{column}')")
    assert refused.value.pgcode == code and hint in refused.value.diag.message_hint
    assert db.query("select * from outbox.queue") == before


@pytest.mark.parametrize("index, fits", [("(urgency desc, id)", True), ("(urgency, id desc)", True), ("(urgency, id)", False),
                                         ("(urgency desc, id) where k is null", False), ("(urgency desc)", False)])
def test_the_index_that_is_missing_is_named(db, worker, index, fits):
    db.psql(f"drop index public.urgent; create index on public.jobs {index}")
    with db.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"set role {OWNER_ROLE}; select outbox.queue_set('jobs', 'public.jobs', priority_column => 'urgency')")
        assert any("no index on (urgency desc, id)" in notice for notice in connection.notices) != fits
    add(db, 0, 9)
    assert ids(worker.take(2)) == [2, 1]


@pytest.mark.parametrize("workers, relays, agreed", [("priority", True, True), (None, True, False), ("priority", False, False)])
def test_workers_and_relays_have_to_agree_on_the_column(db, http, tmp_path, workers, relays, agreed):
    tasks = Tasks(db)
    db.query(f"grant select, delete on public.tasks to {OWNER_ROLE}")
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('tasks', 'public.tasks'{f', priority_column => {workers!r}' if workers else ''})")
    path = tmp_path / "pgcourier.yaml"
    path.write_text(tasks.config(f'type: http, url: "{http.url}"', locks="advisory", priority=relays))
    done = run_command("check-config", "-c", str(path), "--database")
    assert done.returncode == (0 if agreed else 78), done
    if not agreed:
        assert ("workers take events of queue tasks with another priority (outbox.queue): what is urgent to them would not be to relays"
                f"  fix: select outbox.queue_set('tasks', ..., priority_column => {repr('priority') if relays else 'NULL'});") in done.stdout
