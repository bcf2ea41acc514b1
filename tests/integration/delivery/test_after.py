"""columns.after: an event is not delivered before those that it names are done, wherever they are; what waits holds its key."""

import random

import pytest

from tests.support.history import Event, Fault, Final, Receipt, check
from tests.support.postgres import RELAY_ROLE
from tests.support.servers import HANG, Reply, run_command, wait_until
from tests.support.sql_files import rendered

CONFIG = """
database: "{db}"
sinks: {{ web: {{ type: http, url: "{url}" }} }}
queues:
  jobs: {{ table: public.jobs, columns: {{ {key}payload: body, after: after_ids }}, sink: web, retry: {{ base: 10ms, max: 20ms, attempts: {attempts} }},
           keys_per_claim: 8{more} }}
"""


@pytest.fixture
def jobs(db, http, relay):
    db.psql("create table public.jobs (id bigserial primary key, k text, body jsonb, after_ids bigint[]); create index on public.jobs (k, id)")
    db.let_relay_in("public.jobs")

    def start(key="key: k, ", attempts=2, more="", until_empty=False):
        return relay(CONFIG.format(db=db.dsn, url=http.url, key=key, attempts=attempts, more=more), until_empty=until_empty)

    return start


def add(db, key, after=()):
    return db.value("insert into public.jobs (k, body, after_ids) values (%s, '{}', %s) returning id", [key, list(after) or None])


def seen(http):
    return [int(request.headers["event-id"]) for request in http.requests]


def left(db):
    return [row[0] for row in db.query("select id from public.jobs order by id")]


def waits(db):
    return db.query("select event_id, after_id from outbox.parked where after_id is not null order by event_id")


@pytest.mark.parametrize("kind", ["bigint", "int", "bigint[]", "int[]"])
def test_an_event_waits_for_those_that_it_names(db, http, jobs, kind):
    db.psql(f"alter table public.jobs drop after_ids; alter table public.jobs add after_ids {kind}")
    value = "array[{0}]" if kind.endswith("[]") else "{0}"
    db.query(f"insert into public.jobs (k, body, after_ids) values ('a', '{{}}', {value.format(2)}), ('b', '{{}}', {value.format(3)}), ('c', '{{}}', null)")
    http.respond = lambda request: Reply(delay_s=0.3)
    one = jobs()
    wait_until(lambda: left(db) == [])
    assert one.stop() == 0
    assert seen(http) == [3, 2, 1]
    ends = [request.answered_at for request in http.requests]
    assert all(request.received_at >= end for request, end in zip(http.requests[1:], ends)), "each after the answer to the one before"


def test_what_waits_holds_its_key_and_no_other(db, http, jobs):
    db.query("select outbox.pause('jobs', 'z', is_new => true)")
    first = add(db, "z")
    add(db, "a", [first]), add(db, "a"), add(db, "b")
    one = jobs()
    wait_until(lambda: seen(http) == [4])
    wait_until(lambda: waits(db) == [(2, 1)])
    db.query("select outbox.resume('jobs', 'z')")
    wait_until(lambda: left(db) == [])
    assert one.stop() == 0 and seen(http) == [4, 1, 2, 3]


def test_what_becomes_due_does_not_wait_for_what_a_later_one_of_its_key_names(db, http, jobs):
    db.query("alter table public.jobs add at timestamptz")
    first = add(db, "b")
    db.query(f"update public.jobs set at = now() + interval '1 h' where id = {first}")
    timer, named = add(db, "a"), add(db, "a", [first])
    db.query(f"update public.jobs set at = now() + interval '1 s' where id = {timer}")
    jobs(key="key: k, not_before: at, ", more=", delayed: pass")
    wait_until(lambda: waits(db) == [(named, first)], what="the later one to wait")
    wait_until(lambda: left(db) == [first, named], what="what became due")
    wait_until(lambda: waits(db) == [(named, first)], what="the later one to wait again")


def test_an_event_without_a_key_waits_alone_and_so_does_one_of_an_unordered_queue(db, http, jobs):
    db.query(f"grant update (id) on public.jobs to {RELAY_ROLE}")
    for key, more in (None, ""), ("x", ", ordering: unordered, locks: advisory"), ("x", ", ordering: unordered"):
        http.reset()
        http.respond = lambda request: Reply(delay_s=0.3)
        db.query("alter sequence public.jobs_id_seq restart")
        add(db, key, [3]), add(db, key), add(db, key)
        one = jobs(more=more)
        wait_until(lambda: left(db) == [])
        assert one.stop() == 0
        assert sorted(seen(http)) == [1, 2, 3] and seen(http)[-1] == 1
        assert http.requests[-1].received_at >= next(r.answered_at for r in http.requests if r.headers["event-id"] == "3")


def test_a_dead_letter_is_not_done_until_it_is_put_back_or_dropped(db, http, jobs, tmp_path):
    http.rule(lambda request: request.headers["event-id"] in ("1", "2"), Reply(400), times=2)
    add(db, "a"), add(db, "b"), add(db, "c", [1]), add(db, "d", [2])
    one = jobs()
    wait_until(lambda: db.value("select count(*) from outbox.dead") == 2 and waits(db) == [(3, 1), (4, 2)])
    assert db.query("select what, key, event_id, error from outbox.stuck order by event_id") == [
        ("after", "c", 3, "waits for event 1, a dead letter"), ("after", "d", 4, "waits for event 2, a dead letter")]
    late = add(db, "e", [1])
    wait_until(lambda: (late, 1) in waits(db))
    db.let_operator_in("public.jobs")
    path = tmp_path / "operator.yaml"
    path.write_text(CONFIG.format(db=db.operator_dsn, url=http.url, key="key: k, ", attempts=2, more=""))
    done = run_command("dead", "retry", "-c", str(path), "--key", "a")
    assert done.returncode == 0, done
    wait_until(lambda: 3 in seen(http))
    done = run_command("dead", "drop", "-c", str(path), "--key", "b")
    assert done.returncode == 0, done
    wait_until(lambda: left(db) == [])
    assert one.stop() == 0 and seen(http).count(3) == seen(http).count(4) == 1


@pytest.mark.parametrize("key", ["key: k, ", ""])
def test_a_dead_letter_that_something_waits_for_is_not_forgotten(db, http, jobs, key):
    """Both of those that it names: it waits for one of them, and for the other when that is done."""
    http.rule(lambda request: request.headers["event-id"] in ("1", "2", "3"), Reply(400), times=3)
    add(db, "a"), add(db, "b"), add(db, "c"), add(db, "d", [1, 3])
    one = jobs(key=key, more=", dead_retention: 1h")
    wait_until(lambda: db.value("select count(*) from outbox.dead") == 3 and waits(db) == [(4, 1)])
    assert one.stop() == 0
    db.query("update outbox.dead set died_at = now() - interval '2 hours'")
    one = jobs(key=key, more=", dead_retention: 1h")
    wait_until(lambda: db.query("select event_id from outbox.dead order by 1") == [(1,), (3,)])
    add(db, "e")
    wait_until(lambda: 5 in seen(http) and left(db) == [4])
    assert 4 not in seen(http) and waits(db) == [(4, 1)]
    assert one.stop() == 0


def after_look(cursor, *values):
    """The relay's own statement: (woken, last)."""
    text = rendered("upkeep", "after_look.sql", table="public.jobs", undone="true", lives="true", state="outbox", id="e.id")
    cursor.execute("deallocate all; prepare look as " + text)
    cursor.execute("execute look(%s, %s, %s, %s)", ("jobs", *values))
    return cursor.fetchone()


def test_however_many_wait_for_one_event_they_are_woken_a_few_at_a_time(db, jobs):
    first = -2**63
    db.query("insert into public.jobs (id, k) values (20, 'x')")
    db.query("insert into outbox.parked (queue, key, event_id, attempts, next_at, last_error, after_id)"
             " select 'jobs', n::text, 100 + n, 0, 'infinity', '', case when n <= 5 then 7 when n <= 7 then 9 else 20 end"
             " from generate_series(1, 8) n")
    connection = db.connect()
    with connection.cursor() as cursor:
        assert after_look(cursor, first, 2, 3) == (3, first), "there is more of the same"
        assert {after_id for _, after_id in waits(db)} >= {7, 20}
        assert after_look(cursor, first, 2, 3) == (3, first)
        assert after_look(cursor, first, 2, 3) == (1, 20), "the last of those that were asked for, done or not"
        assert waits(db) == [(108, 20)]
        db.query("update outbox.parked set next_at = 'infinity', after_id = 7 where event_id <= 103;"
                 "update outbox.parked set next_at = 'infinity', after_id = 9 where event_id = 104")
        assert after_look(cursor, first, 1, 4) == (3, 7)
        assert after_look(cursor, 7, 1, 4) == (1, 9)
        assert after_look(cursor, 9, 1, 4) == (0, 20)
        assert after_look(cursor, 20, 1, 4) == (0, None)
    connection.close()


RINGS = {"itself": [("a", [1])], "two": [("a", [2]), ("b", [1])], "three": [("a", [2]), ("b", [3]), ("c", [1])]}


@pytest.mark.parametrize("name", RINGS)
def test_events_that_wait_for_each_other_are_shown_and_cost_nothing(db, http, jobs, name):
    for key, after in RINGS[name]:
        add(db, key, after)
    other = add(db, "z")
    one = jobs()
    wait_until(lambda: seen(http) == [other])
    wait_until(lambda: len(waits(db)) == len(RINGS[name]))
    rows = db.query("select event_id, error from outbox.stuck where what = 'after' order by event_id")
    assert rows == [(n + 1, f"waits for event {after[0]}, which waits for it") for n, (_, after) in enumerate(RINGS[name])]
    written = db.value("select max(updated_at) from outbox.parked")
    wait_until(lambda: db.value("select clock_timestamp() > %s + interval '1 s'", [written]), what="five looks to pass")
    assert db.value("select max(updated_at) from outbox.parked") == written, "nobody has written anew what waits"
    db.query("update public.jobs set after_ids = null; select outbox.look_again('jobs')")
    wait_until(lambda: left(db) == [])
    assert one.stop() == 0


@pytest.mark.parametrize("told", ["select outbox.look_again('jobs')", "update outbox.parked set next_at = clock_timestamp()"], ids=["told", "by itself"])
@pytest.mark.parametrize("ordering", ["per_key", "lease"])
def test_a_wait_is_over_once_the_column_is_corrected(db, http, jobs, ordering, told):
    http.rule(lambda request: request.headers["event-id"] in "24", Reply(action=HANG))
    for key, after in (("a", [3]), ("a", ()), ("b", [1]), (None, [3])):
        add(db, key, after)
    one = jobs(more=f", ordering: {ordering}, max_events_per_key: 1")
    wait_until(lambda: [row[0] for row in waits(db)] == [1, 3, 4])
    db.query(f"update public.jobs set after_ids = null; {told}")
    wait_until(lambda: {1, 2, 3, 4} <= set(seen(http)), what="two that hang, and the others")
    wait_until(lambda: db.query("select event_id from outbox.parked where event_id = 2"), what="the entry to go on to the next one")
    if ordering == "lease" or "look" in told:
        assert waits(db) == [] and db.query("select * from outbox.stuck") == []
    assert db.query("select after_id from outbox.parked where event_id = 2") == [(None,)]
    http.release()
    one.kill()


def test_a_look_again_leaves_no_wait(db):
    db.query("insert into outbox.parked (queue, key, event_id, next_at, after_id) values ('jobs', 'a', 1, now() + interval '1 h', 2)")
    assert db.value("select outbox.look_again('jobs')") == 1 and waits(db) == []


def test_names_of_the_same_key_that_go_first_anyway_cost_no_wait(db, http, jobs):
    for n in range(5):
        add(db, "a", [n] if n else ())
    one = jobs()
    wait_until(lambda: left(db) == [])
    assert one.stop() == 0 and seen(http) == [1, 2, 3, 4, 5]
    assert one.logged("queue.stats") is not None


def test_two_hundred_that_wait_for_one_are_woken_together(db, http, jobs):
    http.respond = lambda request: Reply(delay_s=1 if request.headers["event-id"] == "1" else 0)
    add(db, "first")
    db.query("insert into public.jobs (k, body, after_ids) select 'k' || n, '{}', '{1}' from generate_series(1, 200) n")
    one = jobs()
    wait_until(lambda: left(db) == [])
    assert one.stop() == 0
    done = http.requests[0].answered_at
    assert seen(http)[0] == 1 and sorted(seen(http)[1:]) == list(range(2, 202))
    assert all(request.received_at >= done for request in http.requests[1:])


@pytest.mark.parametrize("ordering", ["per_key", "lease"])
def test_nothing_goes_before_what_it_names_though_relays_are_killed(db, http, jobs, ordering):
    """Random names of smaller ids, several relays, kills, failures and dead connections, under the history checker."""
    rng = random.Random(5)
    keys, count = 20, 600
    names = {}
    for n in range(1, count + 1):
        names[n] = sorted(rng.sample(range(1, n), min(rng.choice((0, 0, 1, 2)), n - 1)))
    fails = set(rng.sample(range(1, count + 1), 40))

    def respond(request):
        n = int(request.headers["event-id"])
        if n in fails:
            fails.discard(n)
            return Reply(500)
        return Reply(delay_s=0.05 if rng.random() < 0.02 else 0)

    http.respond = respond
    more = f", ordering: {ordering}, max_events_per_key: 4"
    db.query("insert into public.jobs (id, k, body, after_ids) values " + ", ".join(
        f"({n}, 'k{n % keys}', '{{}}', '{{{','.join(map(str, names[n]))}}}')" for n in names))
    running, faults = [jobs(attempts=1000, more=more) for _ in range(2)], []
    for _ in range(4):
        passed = len(http.requests)
        wait_until(lambda: len(http.requests) > passed + 50 or left(db) == [])
        faults.append(Fault("a relay was killed", in_flight=count, receipts=len(http.requests)))
        running.pop(0).kill()
        running.append(jobs(attempts=1000, more=more))
    wait_until(lambda: left(db) == [], 90)
    for one in running:
        one.kill()
    acked = {}
    for place, request in enumerate(http.requests):
        n = int(request.headers["event-id"])
        for name in names[n]:
            assert name in acked, f"event {n} was delivered before event {name} was"
        if request.answered_at and request.reply.status == 200:
            acked.setdefault(n, place)
    assert len(acked) == count
    events = [Event(n, f"k{n % keys}") for n in names]
    receipts = [Receipt(int(r.headers["event-id"]), f"k{int(r.headers['event-id']) % keys}", "ack" if r.reply.status == 200 else "refuse")
                for r in http.requests]
    check(events, receipts, faults, final=Final([])).require()


def test_a_column_that_holds_no_ids_is_refused(db, jobs, tmp_path):
    db.psql("alter table public.jobs drop after_ids; alter table public.jobs add after_ids text")
    path = tmp_path / "pgcourier.yaml"
    path.write_text(CONFIG.format(db=db.dsn, url="http://localhost", key="", attempts=1, more=""))
    done = run_command("check-config", "-c", str(path), "--database")
    assert done.returncode == 78 and "cannot serve as after; give one of: bigint, integer, bigint[], integer[]" in done.stdout + done.stderr, done
