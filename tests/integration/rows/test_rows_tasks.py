"""Rows T13, P1, P3, L3 and L4 of docs/proof.md, which relays keep whatever the events are, each test named by its row."""

import signal

import pytest

from tests.support.postgres import OWNER_ROLE
from tests.support.servers import Reply, wait_until
from tests.support.workers import Worker

HEAD = """
database: "{dsn}"
sinks: {{ web: {{ type: http, url: "{url}" }}, none: {{ type: discard }} }}
queues:
"""


@pytest.fixture
def start(db, http, relay):
    def run(queues, **options):
        return relay(HEAD.format(dsn=db.dsn, url=http.url) + queues, **options)

    return run


def table(db, name, columns="k text"):
    db.psql(f"create table public.{name} (id bigserial primary key, {columns})")
    db.let_relay_in(f"public.{name}")


def rows(db, name):
    return db.value(f"select count(*) from public.{name}")


def ids(http):
    return [int(request.headers["event-id"]) for request in http.requests]


def test_t13_a_notification_instead_of_polling(db, start):
    table(db, "tasks")
    db.query("select outbox.install_wake('public.tasks')")
    one = start("  tasks: { table: public.tasks, columns: { key: k }, sink: none, poll: { max: 10m } }")
    rests = "select exists (select from pg_locks where locktype = 'advisory' and classid::bigint = 4294967296 - 1818282541)"
    for _ in range(3):
        wait_until(lambda: db.value(rests), what="the relay to rest")
        db.query("insert into public.tasks (k) values ('a')")
        wait_until(lambda: rows(db, "tasks") == 0, 20, "the task, long before the next poll")
    assert one.stop() == 0


def test_t13_a_partial_index_serves_a_queue_with_a_condition(db, start):
    """Of a table that keeps what is not for the queue."""
    table(db, "tasks", "k text, kind text not null")
    db.psql("insert into public.tasks (kind) select 'history' from generate_series(1, 20000);"
            "insert into public.tasks (k, kind) select 'k' || n % 7, 'task' from generate_series(1, 100) n;"
            "create index tasks_open on public.tasks (id) where kind = 'task'; analyze public.tasks")
    one = start("  tasks: { table: public.tasks, columns: { key: k }, where: \"kind = 'task'\", sink: none }", until_empty=True)
    assert one.wait() == 0
    assert db.query("select kind, count(*) from public.tasks group by 1") == [("history", 20000)]
    used = "select idx_scan from pg_stat_user_indexes where indexrelname = 'tasks_open'"
    wait_until(lambda: db.value(used) > 0, what="the index to be used")


def test_t13_a_task_that_is_no_longer_ours_is_not_completed(db):
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('tasks')")
    db.query("insert into outbox.events (aggregateid) values ('a')")
    slow, quick = Worker(db, "tasks", "slow"), Worker(db, "tasks", "quick")
    (lost,) = slow.take(1, lease="100 ms")
    taken = []
    wait_until(lambda: taken.extend(quick.take(1)) or taken, what="the lease to be over")
    assert not slow.done(lost.token) and db.value("select count(*) from outbox.events") == 1
    assert quick.done(taken[0].token) and db.value("select count(*) from outbox.events") == 0
    slow.close()
    quick.close()


def test_t13_texts_of_errors_are_bounded(db, start, http):
    http.respond = lambda request: Reply(500, body=b"x" * 100_000)
    table(db, "tasks")
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('pulled')")
    db.query("insert into outbox.events (aggregateid) values ('a'); insert into public.tasks (k) values ('a')")
    worker = Worker(db, "pulled", "one")
    assert worker.fail(worker.take(1)[0].token, "x" * 100_000)
    worker.close()
    one = start("  tasks: { table: public.tasks, columns: { key: k }, sink: web, retry: { attempts: 1 } }")
    wait_until(lambda: rows(db, "tasks") == 0)
    assert one.stop() == 0
    assert 0 < db.value("select max(length(last_error)) from outbox.parked") <= 1000
    assert 0 < db.value("select max(length(reason)) from outbox.dead") <= 1000


@pytest.mark.parametrize("sink", ["none", "web"])
def test_p1_t13_many_queues_with_a_table_each(db, start, http, sink):
    names = [f"tasks_{n}" for n in range(8)]
    for name in names:
        table(db, name)
        db.query(f"insert into public.{name} (k) select n % 5 from generate_series(1, 50) n")
    one = start("".join(f"  {name}: {{ table: public.{name}, columns: {{ key: k }}, connections: 1, sink: {sink} }}\n" for name in names),
                until_empty=True)
    assert one.wait() == 0
    assert [rows(db, name) for name in names] == [0] * 8
    assert len(http.requests) == (400 if sink == "web" else 0)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_p3_what_a_relay_left_unfinished_is_taken_up_again(db, start, http, number):
    """No state is left behind that could be an odd one."""
    table(db, "tasks")
    db.query("insert into public.tasks (k) select n from generate_series(1, 5) n")
    http.respond = lambda request: Reply(action="hang")
    queues = "  tasks: { table: public.tasks, columns: { key: k }, sink: web }"
    one = start(queues)
    wait_until(lambda: len(http.requests) == 5, what="all to be on their way")
    if number == signal.SIGKILL:
        one.kill()
    else:
        one.send(number)
        wait_until(lambda: one.logged("relay.stop"))
        one.send(number)
        assert one.wait() == 75
    http.respond = None
    assert start(queues, until_empty=True).wait() == 0
    assert rows(db, "tasks") == 0 and sorted(ids(http)) == sorted([*range(1, 6)] * 2)


def test_l3_what_a_relay_holds_does_not_grow_with_the_backlog(db, start, http):
    table(db, "tasks")
    db.query("insert into public.tasks (k) select n from generate_series(1, 3000) n")
    http.respond = lambda request: Reply(delay_s=0.01)
    queues = "  tasks: { table: public.tasks, columns: { key: k }, connections: 1, keys_per_claim: 8, sink: web }"
    one = start(queues, until_empty=True)
    held = "select count(*) from pg_locks where locktype = 'advisory' and objsubid = 2"
    most = 0
    while one.exit_code is None and rows(db, "tasks") > 0:
        most = max(most, db.value(held))
    assert one.wait() == 0
    assert 0 < most <= 4 * 8 and http.in_flight_peak <= 4 * 8


def test_l4_a_relay_that_is_told_to_stop_claims_no_more_and_finishes(db, start, http):
    table(db, "tasks")
    db.query("insert into public.tasks (k) select n from generate_series(1, 40) n")
    http.respond = lambda request: Reply(action="hang")
    one = start("  tasks: { table: public.tasks, columns: { key: k }, connections: 1, keys_per_claim: 10, sink: web }")
    wait_until(lambda: len(http.requests) >= 10, what="some to be on their way")
    one.send(signal.SIGTERM)
    wait_until(lambda: one.logged("relay.stop"))
    begun = len(http.requests)
    http.release()
    assert one.wait(30) == 0
    assert len(http.requests) == begun and rows(db, "tasks") == 40 - begun and one.logged("relay.end drained=yes")
