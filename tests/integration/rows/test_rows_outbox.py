"""Rows R of docs/proof.md, the ordered outbox dispatcher: the article's table as it is, each test named by its row."""

import re
import statistics
import threading
import time

import pytest

from tests.support.journal import read_lines
from tests.support.servers import Reply, run_command, wait_until

TABLE = """
create table public.events (
    id         bigserial primary key,
    order_id   bigint,
    status     text not null,
    created_at timestamptz not null default now()
);
create index on public.events (created_at);
create index on public.events (order_id);
"""

CONFIG = """
database: "{dsn}"
sinks: {{ out: {{ {sink} }} }}
queues:
  orders:
    table: public.events
    columns: {{ key: order_id, type: status, created_at: created_at }}
    sink: out
    {more}
"""


@pytest.fixture
def article(db):
    db.psql(TABLE)
    db.let_relay_in("public.events")
    return db


@pytest.fixture
def start(article, relay):
    def run(sink, more="", **options):
        return relay(CONFIG.format(dsn=article.dsn, sink=sink, more=more), **options)

    return run


def add(db, events, orders):
    """Statuses of the orders in turn."""
    db.query("insert into public.events (order_id, status) select n %% %s, 'step ' || n from generate_series(1, %s) n", (orders, events))


def left(db):
    return db.value("select count(*) from public.events")


def lines(path):
    return list(read_lines(path)) if path.exists() else []


def number(relay, field):
    return float(re.search(rf" {field}=([\d.e+]+)", relay.logged("queue.stats")[-1]).group(1))


def locks(db):
    return db.value("select count(*) from pg_locks where locktype = 'advisory' and objsubid = 2 and pid <> pg_backend_pid()"
                    " and database = (select oid from pg_database where datname = current_database())")


def test_r1_statuses_of_one_order_are_processed_oldest_to_newest(article, start, tmp_path):
    add(article, 400, orders=20)
    out = tmp_path / "out.jsonl"
    assert [one.wait() for one in [start(f"type: file, path: {out}", until_empty=True) for _ in range(2)]] == [0, 0]
    found = lines(out)
    assert sorted(line["id"] for line in found) == list(range(1, 401))
    for order in range(20):
        ids = [line["id"] for line in found if line["key"] == str(order)]
        assert ids == sorted(ids) and len(ids) == 20


def test_r2_statuses_of_one_order_are_never_processed_in_parallel(article, start, http):
    add(article, 60, orders=6)
    http.respond = lambda request: Reply(delay_s=0.02)
    assert [one.wait() for one in [start(f'type: http, url: "{http.url}"', until_empty=True) for _ in range(3)]] == [0, 0, 0]
    by_order = {}
    for request in http.requests:
        by_order.setdefault(request.headers["event-key"], []).append(request)
    assert sorted(map(len, by_order.values())) == [10] * 6 and http.in_flight_peak > 1
    for requests in by_order.values():
        assert all(later.received_at >= earlier.answered_at for earlier, later in zip(requests, requests[1:]))


@pytest.mark.alone
def test_r3_300_events_a_second_beside_other_work(article, start):
    """Other work: two sessions that update a table as fast as they can."""
    article.query("create table public.work (id int primary key, n bigint);"
                  "insert into public.work select n, 0 from generate_series(1, 1000) n")
    done = threading.Event()

    def work(connection):
        with connection.cursor() as cursor:
            while not done.is_set():
                cursor.execute("update public.work set n = n + 1 where id = 1 + (random() * 999)::int")

    workers = [threading.Thread(target=work, args=(article.connect(),)) for _ in range(2)]
    one = start("type: discard")
    for each in workers:
        each.start()
    try:
        begun = time.monotonic()
        for second in range(5):
            add(article, 300, orders=100)
            time.sleep(max(0.0, begun + second + 1 - time.monotonic()))
        wait_until(lambda: left(article) == 0, 10, "the relay to keep up")
    finally:
        done.set()
        for each in workers:
            each.join()
    assert one.stop() == 0
    assert number(one, "delivered") == 1500 and number(one, "lag_max_ms") < 5000


def test_r4_the_drain_is_shared_by_several_workers(article, start, http):
    http.respond = lambda request: Reply(delay_s=0.02)
    add(article, 200, orders=100)
    two = [start(f'type: http, url: "{http.url}/{name}"', "keys_per_claim: 5\n    connections: 1", until_empty=True) for name in "ab"]
    assert [one.wait() for one in two] == [0, 0]
    shares = [number(one, "delivered") for one in two]
    assert sum(shares) == 200 and min(shares) > 20


@pytest.mark.parametrize("end", ["answer", "crash"])
def test_r5_the_lock_of_an_order_goes_with_its_transaction(article, start, http, end):
    http.respond = lambda request: Reply(action="hang")
    add(article, 3, orders=3)
    one = start(f'type: http, url: "{http.url}"')
    wait_until(lambda: len(http.requests) == 3 and locks(article) == 3, what="three orders to be locked")
    http.respond = None
    if end == "crash":
        one.kill()
        start(f'type: http, url: "{http.url}"')
    else:
        http.release()
    wait_until(lambda: left(article) == 0 and locks(article) == 0, what="the locks to go with the events")


NAIVE = "select id, order_id from public.events order by id limit 1"  # walks over every dead row to the first that lives


def test_r6_dead_rows_cost_a_claim_nothing(article, start):
    """200,000 of them, which a snapshot holds and no vacuum takes away."""
    article.query("alter table public.events set (autovacuum_enabled = off)")
    holder = article.connect(autocommit=False)
    with holder.cursor() as cursor:
        cursor.execute("set transaction isolation level repeatable read; select count(*) from public.events")
    add(article, 200_000, orders=1000)
    one = start("type: discard", arguments=["--log-level=debug"])
    wait_until(lambda: left(article) == 0, 60, "the rows to be dead")
    old = len(one.logged("claim.done.* keys=1 "))
    for more in range(1, 31):
        add(article, 1, orders=1)
        wait_until(lambda more=more: len(one.logged("claim.done.* keys=1 ")) == old + more, what="the event")
    claims = [int(re.search(r" took_us=(\d+)", line).group(1)) for line in one.logged("claim.done.* keys=1 ")[old:]]
    naive = []
    with article.connect().cursor() as cursor:
        for _ in range(5):
            begun = time.monotonic()
            cursor.execute(NAIVE)
            naive.append(1e6 * (time.monotonic() - begun))
    holder.close()
    assert one.stop() == 0
    assert statistics.median(claims) < statistics.median(naive) / 4


def test_r7_newest_first_and_the_oldest_within_bounds(article, start, tmp_path):
    add(article, 1000, orders=1000)
    out = tmp_path / "out.jsonl"
    assert start(f"type: file, path: {out}", "keys_per_claim: 10\n    connections: 1", until_empty=True).wait() == 0
    ids = [line["id"] for line in lines(out)]
    assert sorted(ids) == list(range(1, 1001))
    assert ids.index(1000) < 10, "the newest is in the first claim"
    assert ids.index(1) < 100, "and the oldest in one of the first ten"


def test_r8_few_empty_queries_when_there_is_nothing_to_do(article, start):
    one = start("type: discard", "poll: { max: 500ms }")
    wait_until(lambda: one.logged("relay.start"))
    time.sleep(3)
    assert one.stop() == 0
    assert number(one, "claims") < 30
    # All that it asked for, setting up three connections included: the server counts what sessions did when they end.
    assert article.value("select xact_commit from pg_stat_database where datname = current_database()") < 150


def test_r9_the_time_between_insert_and_delivery_is_measured(article, start):
    article.query("insert into public.events (order_id, status, created_at)"
                  " select n, 'new', now() - interval '1 hour' from generate_series(1, 10) n")
    one = start("type: discard", until_empty=True)
    assert one.wait() == 0
    for field in ("lag_p50_ms", "lag_p99_ms", "lag_p999_ms", "lag_max_ms"):
        assert 3_600_000 * 0.87 <= number(one, field) < 4_200_000


def test_r10_any_failure_rolls_back_and_is_retried(article, start, http):
    add(article, 4, orders=2)
    http.rule(lambda request: True, Reply(500), times=1)
    http.rule(lambda request: True, Reply(action="drop"), times=1)
    one = start(f'type: http, url: "{http.url}"', "retry: { base: 10ms, max: 20ms }")
    wait_until(lambda: left(article) == 0, 30, "the retries")
    assert one.stop() == 0
    taken = [request for request in http.requests if request.reply.status == 200 and request.reply.action == "answer"]
    assert sorted(int(request.headers["event-id"]) for request in taken) == [1, 2, 3, 4] and len(http.requests) == 6


def test_r11_rows_are_deleted_by_id_and_never_by_order(article, start, http):
    http.respond = lambda request: Reply(action="hang")
    add(article, 1, orders=1)
    one = start(f'type: http, url: "{http.url}"')
    wait_until(lambda: len(http.requests) == 1, what="the first status to be on its way")
    add(article, 1, orders=1)  # of the same order, and not claimed
    http.release()
    wait_until(lambda: len(http.requests) == 2, what="the second")
    assert article.query("select id from public.events") == [(2,)]
    http.release()
    wait_until(lambda: left(article) == 0)
    assert one.stop() == 0


def test_r12_orders_are_claimed_in_batches(article, start):
    add(article, 5000, orders=500)
    one = start("type: discard", until_empty=True)
    assert one.wait() == 0
    assert number(one, "delivered") == 5000 and number(one, "claims") - number(one, "empty_claims") <= 50


def test_r13_the_articles_table_is_served_as_it_is(article, start, tmp_path):
    shape = ("select attname, format_type(atttypid, atttypmod), attnotnull from pg_attribute where attrelid = 'public.events'::regclass"
             " union all select indexdef, tablename, null from pg_indexes where tablename = 'events' order by 1")
    before = article.query(shape)
    path = tmp_path / "pgcourier.yaml"
    path.write_text(CONFIG.format(dsn=article.dsn, sink="type: discard", more=""))
    done = run_command("check-config", "--database", "-c", str(path))
    assert done.returncode == 0, done.stderr
    add(article, 10, orders=3)
    article.query("insert into public.events (status) values ('of no order')")
    assert start("type: discard", until_empty=True).wait() == 0
    assert left(article) == 0 and article.query(shape) == before


@pytest.mark.parametrize("target", ["redis", "http", "kafka"], indirect=True)
def test_r14_sinks_are_a_matter_of_configuration(article, start, target):
    add(article, 20, orders=4)
    queue = "".join(f"{name}: {value}\n" for name, value in target.queue.items())
    assert start(target.sink(), queue, until_empty=True).wait() == 0
    receipts = target.receipts()
    assert sorted(receipt.id for receipt in receipts) == list(range(1, 21))


@pytest.mark.parametrize("after, kept", [("delete", 0), ("archive", 20)])
def test_r15_delivered_rows_are_deleted_or_archived(article, start, after, kept):
    add(article, 20, orders=4)
    assert start("type: discard", f"after: {after}", until_empty=True).wait() == 0
    assert left(article) == 0
    assert article.value("select count(*) from outbox.archive where queue = 'orders' and original->>'status' like 'step %%'") == kept
