"""Events that are enqueued again: publish(..., dedupe_key =>, on_duplicate =>)."""

import random
import threading
import time

import psycopg2
import pytest

from tests.support.history import Event, Fault, Final, check
from tests.support.postgres import OWNER_ROLE, PRODUCER_ROLE
from tests.support.servers import HANG, Reply, run_command, wait_until
from tests.support.targets import http_receipts
from tests.support.workers import Worker

CONFIG = """
database: "{dsn}"
sinks: {{ hook: {{ type: http, url: "{url}" }} }}
queues: {{ tasks: {{ sink: hook }} }}
"""
READ = """select sum(pg_stat_get_xact_tuples_returned(r.oid)) from (
    select 'outbox.parked'::regclass as oid union select i.indexrelid from pg_index i where i.indrelid = 'outbox.parked'::regclass) r"""
WAITING = "select payload::text from outbox.events where dedupe_key = 'd' order by id"


def publish(db, payload, mode, dedupe="d", key="k"):
    return db.value("select outbox.publish(%s, 't', %s, dedupe_key => %s, on_duplicate => %s)", (key, str(payload), dedupe, mode))


def judge(db, http, published, replaced=(), faults=()):
    """published: {id: key} of what publish() has put into the table, all of which has come to its end. Of what was replaced while it
    waited nobody may ever hear."""
    left = [row[0] for row in db.query("select id from outbox.events")]
    events = [Event(event_id, key, "no" if event_id in replaced else "yes") for event_id, key in published.items()]
    return check(events, http_receipts(http), faults, Final(left, [row[0] for row in db.query("select event_id from outbox.dead")])).require()


@pytest.mark.parametrize("mode, left", [("ignore", "1"), ("replace", "3"), ("again", "3")])
def test_of_events_that_wait_one_is_left(db, mode, left):
    ids = [publish(db, payload, mode) for payload in (1, 2, 3)]
    assert db.query(WAITING) == [(left,)]
    assert (ids[1] is None) == (mode == "ignore") and db.value("select max(id) from outbox.events") == [x for x in ids if x][-1]
    publish(db, 4, mode, dedupe="other")
    assert db.value("select count(*) from outbox.events") == 2


def test_an_event_without_a_key_is_kept_from_its_duplicates_by_its_dedupe_key(db):
    publish(db, 1, "again", key=None)
    assert db.query("select aggregateid, dedupe_key from outbox.events") == [("d", "d")]


@pytest.mark.parametrize("verb, said", [("retry", "retried"), ("drop", "dropped")])
@pytest.mark.parametrize("mode", ["replace", "again"])
def test_what_takes_the_place_of_an_event_that_has_closed_its_key_waits_for_somebody_to_open_it(db, http, relay, tmp_path, mode, verb, said):
    path = tmp_path / "pgcourier.yaml"
    path.write_text(CONFIG.format(dsn=db.operator_dsn, url=http.url).replace("sink: hook", "sink: hook, retry: { on_exhausted: park }"))
    db.let_operator_in("outbox.events")
    http.respond = lambda request: Reply(status=422)
    one = relay(path.read_text())
    first = publish(db, 1, mode)
    shown = "select event_id from outbox.stuck where what = 'closed' and key = 'k'"
    wait_until(lambda: db.query(shown) == [(first,)], what="the key to be closed")
    http.respond = lambda request: Reply()
    second, behind = publish(db, 2, mode), publish(db, 3, mode, dedupe="other")
    assert [row[0] for row in db.query("select id from outbox.events order by id")] == [second, behind] and db.query(shown) == [(first,)]
    listed = run_command("dead", "list", "-c", str(path)).stdout.splitlines()[1]
    assert listed.split()[:4] == ["closed", "tasks", str(first), "k"]
    done = run_command("dead", verb, "--key", "k", "-c", str(path))
    assert done.stdout == f"{said} 0 dead letters, opened 1 closed key\n", done.stderr
    wait_until(lambda: db.query("select id from outbox.events") == [], what="both to be delivered")
    assert [request.body for request in http.requests] == [b"1", b"2", b"3"] and one.stop() == 0


@pytest.mark.parametrize("mode", ["never", None])
def test_another_mode_is_refused(db, mode):
    with pytest.raises(psycopg2.errors.InvalidParameterValue) as refused:
        publish(db, 1, mode)
    assert refused.value.diag.message_hint and db.query("select * from outbox.events") == []


@pytest.mark.parametrize("arguments", ["headers => '[1]'", "on_duplicate => 'x'", "on_duplicate => null", "headers => '1', dedupe_key => 'd'"])
def test_headers_that_are_none_and_a_mode_without_a_dedupe_key_are_refused(db, arguments):
    with pytest.raises(psycopg2.errors.InvalidParameterValue) as refused:
        db.query(f"select outbox.publish('k', 't', '1', {arguments})")
    assert refused.value.diag.message_hint and db.query("select * from outbox.events") == []


@pytest.mark.parametrize("mode", ["replace", "again"])
def test_a_mode_for_duplicates_wants_a_dedupe_key(db, mode):
    with pytest.raises(psycopg2.errors.NullValueNotAllowed, match=f"on_duplicate => '{mode}' is for events with a dedupe_key") as refused:
        publish(db, 1, mode, dedupe=None)
    assert "dedupe_key" in refused.value.diag.message_hint and db.query("select * from outbox.events") == []
    assert publish(db, 1, "ignore", dedupe=None)


@pytest.mark.parametrize("mode", ["ignore", "replace", "again"])
@pytest.mark.parametrize("keeps", ["return null", "new.dedupe_key := upper(new.dedupe_key); return new"])
def test_a_trigger_that_keeps_an_event_out_is_told_of(db, mode, keeps):
    changes = "upper" in keeps
    db.query(f"create function public.keep() returns trigger language plpgsql as $$ begin {keeps}; end $$;"
             " create trigger keep before insert on outbox.events for each row execute function public.keep()")
    if changes:
        assert publish(db, 1, mode)
    before = db.query("select * from outbox.events")
    with pytest.raises(psycopg2.errors.ObjectNotInPrerequisiteState, match="does not take the event with the dedupe_key 'd': a trigger") as refused:
        publish(db, 2, mode)
    assert refused.value.diag.message_hint and db.query("select * from outbox.events") == before


@pytest.mark.parametrize("mode, event", [("replace", "delete"), ("again", "delete"), ("again", "update")])
def test_a_trigger_that_keeps_the_one_that_waits_is_told_of(db, mode, event):
    first = publish(db, 1, mode)
    db.query("create function public.keep() returns trigger language plpgsql as 'begin return null; end';"
             f" create trigger keep before {event} on outbox.events for each row execute function public.keep()")
    with db.connect(autocommit=False) as other, other.cursor() as cursor:
        if event == "update":
            cursor.execute("select pg_advisory_xact_lock(outbox.lock_class_of('outbox.events'), outbox.lock_hash('text', 'k', 0))")  # it is under way
        with pytest.raises(psycopg2.errors.ObjectNotInPrerequisiteState, match="keeps the event with the dedupe_key 'd' as it is") as refused:
            publish(db, 2, mode)
    assert refused.value.diag.message_hint and db.query("select id from outbox.events") == [(first,)]


@pytest.mark.parametrize("mode, left", [("ignore", "1"), ("replace", "2"), ("again", "2")])
def test_arguments_may_have_a_collation_of_their_own(db, mode, left):
    db.query('create table public.orders (id text collate "POSIX", ref text collate "POSIX", mode text collate "POSIX");'
             f" insert into public.orders values ('k', 'd', '{mode}')")
    for payload in "12":
        db.query(f"select outbox.publish(id, ref, '{payload}', dedupe_key => ref, on_duplicate => mode) from public.orders")
    assert db.query(WAITING) == [(left,)]


def test_what_is_replaced_is_looked_for_by_its_key_among_many_that_wait(db):
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('tasks')")
    db.query("insert into outbox.parked (queue, key, event_id, next_at) select 'tasks', 'other-' || n, -n, now() + interval '1 h' from generate_series(1, 5000) n")
    db.query("vacuum analyze outbox.parked")
    publish(db, 1, "replace")
    with db.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("select outbox.publish('k', 't', '2', dedupe_key => 'd', on_duplicate => 'replace')")
        cursor.execute(READ)
        assert cursor.fetchone()[0] < 100
    assert db.query(WAITING) == [("2",)]


def test_a_producer_needs_no_more_rights_for_it(db):
    with db.connect(user=PRODUCER_ROLE) as connection, connection.cursor() as cursor:
        for mode in ("ignore", "replace", "again"):
            cursor.execute("select outbox.publish('k', 't', '1', dedupe_key => 'd', on_duplicate => %s)", (mode,))
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            cursor.execute("update outbox.events set payload = '2'")


@pytest.mark.parametrize("mode", ["ignore", "replace"])
def test_a_producer_that_does_not_commit_holds_up_no_event_that_is_under_way(db, relay, http, mode):
    http.rule(lambda request: True, Reply(action=HANG), times=1)
    one = relay(CONFIG.format(dsn=db.dsn, url=http.url))
    first = publish(db, 1, mode)
    wait_until(lambda: http.requests, what="the event to be sent")
    producer = db.connect(autocommit=False)
    with producer.cursor() as cursor:
        cursor.execute("select outbox.publish('k', 't', '2', dedupe_key => 'd', on_duplicate => %s)", (mode,))
        assert cursor.fetchone() == (None,)
    http.rule(lambda request: True, Reply(200))
    http.release()
    wait_until(lambda: db.value("select count(*) from outbox.events") == 0 or db.query("select pid from pg_stat_activity where wait_event_type = 'Lock'"),
               what="the event to be settled")
    assert db.value("select count(*) from outbox.events") == 0
    producer.close()
    assert one.stop() == 0
    judge(db, http, {first: "k"})


@pytest.mark.parametrize("ordering", ["per_key", "lease"])
@pytest.mark.parametrize("mode, delivered", [("ignore", [1]), ("replace", [1]), ("again", [1, 2, 3])])
def test_what_is_under_way_is_left_to_its_relay(db, relay, http, mode, delivered, ordering):
    http.respond = lambda request: Reply(200, delay_s=1)
    one = relay(CONFIG.format(dsn=db.dsn, url=http.url).replace("hook }", f"hook, ordering: {ordering} }}"))
    published = [publish(db, 1, mode)]
    wait_until(lambda: http.requests, what="the first one to be sent")
    published += [publish(db, 2, mode), publish(db, 3, mode)]
    wait_until(lambda: db.value("select count(*) from outbox.events") == 0, what="all to be delivered")
    assert [request.json() for request in http.requests] == delivered  # 2 may be in the relay's hands, too, when 3 comes
    assert one.stop() == 0 and one.logged("queue.stats.*missing=0 ")
    judge(db, http, {event_id: "k" for event_id in published if event_id})


@pytest.mark.parametrize("settings", ["ordering: unordered, locks: advisory", "lock_class: 7"])
def test_what_is_under_way_is_left_to_its_relay_whatever_it_locks(db, relay, http, settings):
    http.respond = lambda request: Reply(200, delay_s=1)
    one = relay(CONFIG.format(dsn=db.dsn, url=http.url).replace("hook }", f"hook, {settings} }}"))
    first = publish(db, 1, "replace")
    wait_until(lambda: http.requests, what="the first one to be sent")
    assert publish(db, 2, "replace") is None
    wait_until(lambda: db.value("select count(*) from outbox.events") == 0, what="it to be delivered")
    assert one.stop() == 0 and one.logged("queue.stats.*missing=0 ")
    judge(db, http, {first: "k"})


def test_what_a_worker_has_of_a_queue_without_keys_is_left_to_it(db):
    columns = "tbl => 'outbox.events', payload_column => 'payload'"
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('tasks', {columns})")
    worker = Worker(db, "tasks")
    publish(db, 1, "replace")
    (event,) = worker.take(1)
    assert publish(db, 2, "replace") is None
    assert worker.done(event.token)


def test_one_that_takes_the_place_of_a_later_one_does_not_wait_for_its_time(db, relay, http):
    later = "select outbox.publish('k', 't', %s, not_before => clock_timestamp() + %s::interval, dedupe_key => 'd', on_duplicate => 'replace')"
    one = relay(CONFIG.format(dsn=db.dsn, url=http.url))
    first = db.value(later, ("1", "1 day"))
    wait_until(lambda: db.query("select delayed from outbox.status_parked") == [(1,)], what="it to be known to be late")
    wait_until(lambda: db.value(later, ("2", "0 s")), what="it to be replaced")
    wait_until(lambda: [request.json() for request in http.requests] == [2], what="what took its place")
    wait_until(lambda: db.value("select count(*) from outbox.events") == 0)
    assert one.stop() == 0
    judge(db, http, {first: "k", int(http.requests[0].headers["event-id"]): "k"}, replaced=[first])


def test_a_dead_letter_comes_back_beside_one_that_waits(db, http, tmp_path):
    path = tmp_path / "pgcourier.yaml"
    path.write_text(CONFIG.format(dsn=db.operator_dsn, url=http.url))
    db.let_operator_in("outbox.events")
    http.respond = lambda request: Reply(422)
    publish(db, 1, "ignore")
    path_of_relay = tmp_path / "relay.yaml"
    path_of_relay.write_text(CONFIG.format(dsn=db.dsn, url=http.url).replace("hook }", "hook, retry: { attempts: 1 } }"))
    assert run_command("run", "-c", str(path_of_relay), "--until-empty").returncode == 0
    publish(db, 2, "ignore")
    done = run_command("dead", "retry", "-c", str(path), "--all")
    assert done.returncode == 0, done.stderr
    assert db.query("select payload::text, dedupe_key from outbox.events order by id") == [("1", None), ("2", "d")]


def test_what_a_lease_may_cover_besides_its_first_event_is_left_to_the_relay(db, relay, http):
    http.respond = lambda request: Reply(200, delay_s=1)
    published = [publish(db, payload, "replace", dedupe) for payload, dedupe in ((1, "first"), (2, "d"))]
    one = relay(CONFIG.format(dsn=db.dsn, url=http.url).replace("hook }", "hook, ordering: lease }"))
    wait_until(lambda: http.requests, what="the first one to be sent")
    assert publish(db, 3, "replace") is None
    wait_until(lambda: db.value("select count(*) from outbox.events") == 0, what="all to be delivered")
    assert [request.json() for request in http.requests] == [1, 2]
    assert one.stop() == 0 and one.logged("queue.stats.*missing=0 ")
    judge(db, http, {event_id: "k" for event_id in published})


@pytest.mark.parametrize("mode, left", [("replace", []), ("again", ["2"])])
def test_what_a_worker_has_is_left_to_it(db, mode, left):
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('tasks')")
    worker = Worker(db, "tasks")
    publish(db, 1, mode)
    (event,) = worker.take(1)
    publish(db, 2, mode)
    assert worker.take(1) == [] and worker.done(event.token)
    assert [row[0] for row in db.query(WAITING)] == left
    assert [event.payload for event in worker.take(1)] == left


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
@pytest.mark.parametrize("mode", ["replace", "again"])
def test_a_snapshot_from_before_a_lease_is_refused(db, mode, level):
    """It would not show that a worker has the first one by now."""
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('tasks')")
    worker = Worker(db, "tasks")
    first = publish(db, 1, mode)
    with db.connect(autocommit=False) as producer, producer.cursor() as cursor:
        cursor.execute(f"set transaction isolation level {level}; select")
        (event,) = worker.take(1)
        with pytest.raises(psycopg2.Error, match=f"has to be read committed, and is {level}") as refused:
            cursor.execute("select outbox.publish('k', 't', '2', dedupe_key => 'd', on_duplicate => %s)", (mode,))
    assert refused.value.pgcode == "25000" and "begin isolation level read committed" in refused.value.diag.message_hint
    assert db.query("select id, dedupe_key from outbox.events") == [(first, "d")] and worker.done(event.token)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_what_asks_for_no_lease_goes_with_any_isolation_level(db, level):
    with db.connect(autocommit=False) as producer, producer.cursor() as cursor:
        cursor.execute(f"set transaction isolation level {level}; select outbox.publish('k', 't', '1', dedupe_key => 'd'),"
                       " outbox.publish('k', 't', '2', dedupe_key => 'd'), outbox.publish('k', 't', '3')")
        assert cursor.fetchone() == (1, None, 3)
        producer.commit()
    assert db.query("select payload::text from outbox.events order by id") == [("1",), ("3",)]


JOBS = """create table public.jobs (id bigserial primary key, customer text, body jsonb); create index on public.jobs (customer, id);
grant select, delete on public.jobs to shop_owner; insert into public.jobs (customer) values ('k')"""
OVER_JOBS = "tbl => 'public.jobs', key_column => 'customer', payload_column => 'body'"


@pytest.mark.parametrize("mode", ["replace", "again"])
def test_a_lease_on_the_same_key_of_another_table_is_nothing_to_it(db, mode):
    db.query(f"{JOBS}; set role {OWNER_ROLE}; select outbox.queue_set('jobs', {OVER_JOBS})")
    publish(db, 1, mode)
    assert Worker(db, "jobs").take(1)
    assert publish(db, 2, mode)
    assert db.query("select payload::text from outbox.events") == [("2",)]


def test_a_lease_of_a_relays_other_table_is_nothing_to_it(db, relay, http):
    db.query(JOBS)
    db.let_relay_in("public.jobs")
    http.rule(lambda request: True, Reply(action=HANG), times=1)
    jobs = CONFIG.format(dsn=db.dsn, url=http.url).replace("tasks: { sink: hook }",
        "jobs: { table: public.jobs, columns: { key: customer, payload: body }, sink: hook, ordering: lease }")
    publish(db, 1, "replace")
    relay(jobs)
    wait_until(lambda: http.requests, what="the row of the other table to be sent")
    assert db.value("select count(*) from outbox.parked where queue = 'jobs' and key = 'k' and token is not null") == 1
    assert publish(db, 2, "replace")
    assert db.query("select payload::text from outbox.events") == [("2",)]
    http.release()


def test_a_lease_of_a_queue_whose_table_nothing_here_knows_counts(db):
    publish(db, 1, "replace")
    db.query("insert into outbox.parked (queue, key, event_id, next_at, token) values ('elsewhere', 'k', 1, 'infinity', gen_random_uuid())")
    assert publish(db, 2, "replace") is None
    db.query("insert into outbox.served (queue, tbl) values ('elsewhere', 'outbox.parked')")
    assert publish(db, 2, "replace")


def test_what_waits_in_a_queue_whose_table_nothing_here_knows_stays(db):
    """Its event may have the same id in another table."""
    first = publish(db, 1, "replace")
    db.query("insert into outbox.parked (queue, key, event_id, keyless, attempts, next_at) values ('elsewhere', '', %s, true, 3, 'infinity'),"
             " ('elsewhere', 'k', %s, false, 0, 'infinity')", (first, first))
    entries = "select * from outbox.parked order by keyless"
    before = db.query(entries)
    second = publish(db, 2, "replace")
    assert second and db.query(entries) == before
    db.query("insert into outbox.served (queue, tbl) values ('elsewhere', 'outbox.events'); update outbox.parked set event_id = %s", (second,))
    assert publish(db, 3, "replace") and db.query("select keyless, next_at < 'infinity' from outbox.parked") == [(False, True)]


def test_one_that_failed_and_waits_may_be_replaced(db, relay, http):
    http.rule(lambda request: request.json() == 1, Reply(500))
    one = relay(CONFIG.format(dsn=db.dsn, url=http.url))
    first = publish(db, 1, "replace")
    wait_until(lambda: db.value("select count(*) from outbox.parked") == 1, what="the first one to fail")
    second = wait_until(lambda: publish(db, 2, "replace"), what="it to wait")
    wait_until(lambda: db.value("select count(*) from outbox.events") == 0, what="the second one")
    assert http.requests[-1].json() == 2 and db.query("select * from outbox.dead") == []
    assert one.stop() == 0
    judge(db, http, {first: "k", second: "k"}, faults=[Fault("the first one was replaced when it had failed", dropped=[first])])


def test_of_many_that_come_again_the_latest_is_delivered_last(db, relay, http):
    """Two relays, three producers, the last version of each of five tasks, and one relay is killed in between."""
    http.respond = lambda request: Reply(200, delay_s=random.random() / 50)
    config = CONFIG.replace("hook }", "hook, max_events_per_key: 2 }")
    relays = [relay(config.format(dsn=db.dsn, url=f"{http.url}/in/{number}")) for number in range(2)]
    last, published = {}, {}

    def produce(seed):
        rng = random.Random(seed)
        connection = db.connect()
        with connection.cursor() as cursor:
            for n in range(150):
                task = f"task-{seed}-{rng.randint(0, 4)}"
                cursor.execute("select outbox.publish(null, 't', %s, dedupe_key => %s, on_duplicate => 'again')", (str(n), task))
                last[task] = n
                published[cursor.fetchone()[0]] = task
                time.sleep(0.002)
        connection.close()

    threads = [threading.Thread(target=produce, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(http.requests) > 20, what="deliveries")
    faults = [Fault("a relay was killed", in_flight=15 * 2, relay="0", receipts=len(http.requests))]
    relays[0].kill()
    for thread in threads:
        thread.join()
    wait_until(lambda: db.value("select count(*) from outbox.events") == 0, 60, what="all to be delivered")
    assert relays[1].stop() == 0
    newest = set({task: event_id for event_id, task in sorted(published.items())}.values())
    receipts = http_receipts(http)
    heard_of = {receipt.id for receipt in receipts}
    lost_sight_of = heard_of - {receipt.id for receipt in receipts if receipt.answer == "ack"}  # what the killed one had on its way
    faults.append(Fault("what waited again was replaced", dropped=lost_sight_of - newest))
    judge(db, http, published, replaced=published.keys() - newest - heard_of, faults=faults)
    seen = {}
    for request in http.requests:
        seen.setdefault(request.headers["event-key"], []).append(request.json())
    assert {task: versions[-1] for task, versions in seen.items()} == last
