"""publish(..., on_duplicate => 'again') in queues without an order: what comes again waits for the one that is under way."""

import random
import threading
import time

import pytest

from tests.support.history import Fault
from tests.support.noted import Noted
from tests.support.postgres import RELAY_ROLE
from tests.support.servers import HANG, Reply, wait_until
from tests.support.targets import http_receipts
from tests.support.workers import Worker, owner

CONFIG = """
database: "{dsn}"
sinks: {{ hook: {{ type: http, url: "{url}" }} }}
queues: {{ tasks: {{ sink: hook, {queue}, poll: {{ max: 20ms }}, retry: {{ base: 10ms, max: 20ms, attempts: {attempts} }} }} }}
"""
KEYLESS = "table: outbox.events, columns: { payload: payload }"
QUEUES = {"advisory": "ordering: unordered, locks: advisory", "keyless": KEYLESS, "leased": f"{KEYLESS}, ordering: lease"}


def publish(db, payload, mode="again", dedupe="d", more="", kind="t"):
    return db.value(f"select outbox.publish('k', '{kind}', %s, dedupe_key => %s, on_duplicate => %s{more})", (str(payload), dedupe, mode))


def sent(http):
    return [request.json() for request in http.requests]


def left(db):
    return [int(row[0]) for row in db.query("select payload::text from outbox.events order by id")]


def waits(db):
    return db.query("select event_id, after_id from outbox.parked where after_id is not null order by event_id")


@pytest.fixture
def noted(db):
    """Events of one dedupe_key are to be judged like those of one key."""
    return Noted(db, key="dedupe_key")


def judge(db, noted, receipts, replaced=(), **options):
    keys = dict(db.query("select id, key from public.noted"))
    noted.check([receipt._replace(key=keys[receipt.id]) for receipt in receipts], replaced=replaced, **options)
    assert db.query("select * from outbox.parked") == []


def begin(db, relay, http, config):
    """The relay, which has the first version under way and cannot end it."""
    http.rule(lambda request: request.json() == 1, Reply(action=HANG), times=1)
    publish(db, 1)
    one = relay(config)
    wait_until(lambda: http.requests, what="the first one to be sent")
    return one


@pytest.fixture(params=QUEUES)
def serve(request, db, relay, http, noted):
    return lambda attempts=3: begin(db, relay, http, CONFIG.format(dsn=db.dsn, url=http.url, queue=QUEUES[request.param], attempts=attempts))


def pass_by(db, http, payload, kind="t"):
    """Another event is claimed and delivered: what lies before it has been looked at."""
    publish(db, payload, dedupe=f"other-{payload}", kind=kind)
    wait_until(lambda: payload in sent(http) and payload not in left(db), what="another event to be delivered")


def test_what_comes_again_waits_for_the_one_that_is_under_way(db, http, serve, noted):
    one = serve()
    publish(db, 2)
    pass_by(db, http, 11)
    db.query("select outbox.look_again('tasks')")
    pass_by(db, http, 12)
    assert sent(http) == [1, 11, 12] and left(db) == [1, 2]
    assert db.query("select delayed, closed from outbox.status_parked where queue = 'tasks'") == [(1, 0)]
    http.release()
    wait_until(lambda: left(db) == [], what="all to be delivered")
    assert sent(http) == [1, 11, 12, 2]
    assert one.stop() == 0 and one.logged("queue.stats.*missing=0 ")
    judge(db, noted, http_receipts(http))


def test_what_takes_its_place_waits_as_long(db, http, serve, noted):
    one = serve()
    second = publish(db, 2)
    pass_by(db, http, 11)
    third = wait_until(lambda: publish(db, 3, "replace"), what="it to wait")
    pass_by(db, http, 12)
    assert left(db) == [1, 3] and [event_id for event_id, _ in waits(db)] == [third]
    fourth = publish(db, 4, more=", not_before => 'infinity'")
    pass_by(db, http, 13)  # by then it waits, and no claim has it just now
    assert publish(db, 5) and left(db) == [1, 5]
    pass_by(db, http, 14)
    http.release()
    wait_until(lambda: left(db) == [], what="all to be delivered")
    assert sent(http) == [1, 11, 12, 13, 14, 5] and one.stop() == 0
    judge(db, noted, http_receipts(http), replaced=[second, third, fourth])


def test_one_that_fails_goes_first_again(db, http, serve, noted):
    one = serve()
    publish(db, 2)
    pass_by(db, http, 11)
    http.release(Reply(500))
    wait_until(lambda: left(db) == [], what="all to be delivered")
    assert sent(http) == [1, 11, 1, 2] and one.stop() == 0
    judge(db, noted, http_receipts(http))


def test_one_that_becomes_a_dead_letter_is_waited_for_no_longer(db, http, serve, noted):
    one = serve(attempts=1)
    publish(db, 2)
    pass_by(db, http, 11)
    http.release(Reply(500))
    wait_until(lambda: left(db) == [], what="the other")
    assert sent(http) == [1, 11, 2] and db.value("select count(*) from outbox.dead") == 1 and one.stop() == 0
    judge(db, noted, http_receipts(http))


def test_where_rows_are_locked_it_waits_for_one_that_failed(db, relay, http, noted):
    db.query(f"grant update (id) on outbox.events to {RELAY_ROLE}")
    one = begin(db, relay, http, CONFIG.format(dsn=db.dsn, url=http.url, queue="ordering: unordered", attempts=3).replace("10ms, max: 20ms", "1s, max: 1s"))
    producer = threading.Thread(target=publish, args=(db, 2))
    producer.start()
    wait_until(lambda: db.value("select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query ~ 'publish'") == 1, what="the producer to wait")
    http.release(Reply(500))
    producer.join()
    wait_until(lambda: left(db) == [], what="all to be delivered")
    assert sent(http) == [1, 1, 2] and one.stop() == 0
    judge(db, noted, http_receipts(http))


def test_it_waits_for_one_of_another_queue_over_the_same_table(db, relay, http, noted):
    of_kind = "".join(f"  of_{kind}: {{ sink: hook, {QUEUES['advisory']}, where: \"type = '{kind}'\", poll: {{ max: 20ms }} }}\n" for kind in "tu")
    one = begin(db, relay, http, f'database: "{db.dsn}"\nsinks: {{ hook: {{ type: http, url: "{http.url}" }} }}\nqueues:\n{of_kind}')
    second = publish(db, 2, kind="u")
    pass_by(db, http, 11, kind="u")
    pass_by(db, http, 12)
    assert sent(http) == [1, 11, 12] and waits(db) == [(second, 1)]
    http.release()
    wait_until(lambda: left(db) == [], what="all to be delivered")
    assert sent(http) == [1, 11, 12, 2] and one.stop() == 0
    judge(db, noted, http_receipts(http))


def test_of_many_that_come_again_never_two_are_under_way_at_once(db, relay, http, noted):
    """Two relays, three producers; each consumer hears the last version of each of five tasks last."""
    http.respond = lambda request: Reply(200 if random.random() < 0.9 else 500, delay_s=random.random() / 10)
    relays = [relay(CONFIG.format(dsn=db.dsn, url=f"{http.url}/in/{number}", queue=QUEUES["advisory"], attempts=100)) for number in range(2)]
    last = {}

    def produce(seed):
        rng = random.Random(seed)
        for n in range(150):
            task = f"task-{seed}-{rng.randint(0, 4)}"
            publish(db, n, dedupe=task)
            last[task] = n
            time.sleep(0.002)

    threads = [threading.Thread(target=produce, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until(lambda: left(db) == [], 60, what="all to be delivered")
    assert [one.stop() for one in relays] == [0, 0]
    receipts = http_receipts(http)
    keys, heard_of = dict(db.query("select id, key from public.noted")), {receipt.id for receipt in receipts}
    taken = {receipt.id for receipt in receipts if receipt.answer == "ack"}
    judge(db, noted, receipts, replaced=keys.keys() - heard_of, faults=[Fault("what had failed was replaced", dropped=heard_of - taken)])
    assert {keys[int(request.headers["event-id"])]: request.json() for request in http.requests if request.reply.status == 200} == last


def queue_set(db, more=""):
    owner(db, "select outbox.queue_set('tasks', 'outbox.events', payload_column => 'payload', retry_base => '1 ms', retry_max => '1 ms',"
              f" max_attempts => 2{more})")
    return Worker(db, "tasks")


def take(worker, count=10):
    return [int(event.payload) for event in worker.take(count)]


def test_what_comes_again_waits_for_the_worker_that_has_the_first(db, noted):
    worker = queue_set(db)
    publish(db, 1)
    (first,) = worker.take(1)
    second = publish(db, 2)
    assert worker.take(10) == [] and waits(db) == [(second, first.id)]
    db.query("select outbox.look_again('tasks')")
    assert worker.take(10) == []
    third = publish(db, 3)
    assert worker.take(10) == [] and waits(db) == [(third, first.id)]
    assert worker.done(first.token)
    (last,) = wait_until(lambda: worker.take(10), what="what came again")
    assert last.id == third and worker.done(last.token)
    judge(db, noted, worker.receipts, replaced=[second])


@pytest.mark.parametrize("after", [False, True])
def test_workers_wait_for_one_that_fails_and_not_for_a_dead_letter(db, noted, after):
    if after:
        db.psql("alter table outbox.events add named bigint")
    worker = queue_set(db, ", after_column => 'named'" if after else "")
    publish(db, 1)
    (first,) = worker.take(1)
    second = publish(db, 2)
    assert worker.take(10) == [] and worker.fail(first.token)
    (again,) = wait_until(lambda: worker.take(10), what="the first one")
    assert again.id == first.id and worker.take(10) == []
    assert worker.fail(again.token)
    if after:
        db.query("select outbox.look_again('tasks')")
    (last,) = wait_until(lambda: worker.take(10), what="what came again")
    assert worker.done(last.token) and last.id == second
    judge(db, noted, worker.receipts, attempts=2)
