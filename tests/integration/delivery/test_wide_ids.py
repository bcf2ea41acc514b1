"""Ids that no sequence feeds may lie anywhere."""

import operator
import re

import pytest

from tests.support.postgres import OWNER_ROLE
from tests.support.servers import wait_until
from tests.support.workers import Worker, owner

CONFIG = """
database: "{dsn}"
sinks: {{ none: {{ type: discard }} }}
queues:
  orders: {{ table: public.t, columns: {{ key: k }}, sink: none }}
"""


TOP, BOTTOM = 9223372036854775807, -9223372036854775808

wide = pytest.mark.parametrize("ids", [(1, TOP), (BOTTOM, 0, TOP), (BOTTOM,), (1_700_000_000_000_000_000, 1_700_000_000_000_000_001)],
                               ids=["top", "both", "bottom", "snowflake"])


@wide
def test_a_table_with_ids_far_apart_is_drained_in_few_claims(db, relay, ids):
    db.query("create table public.t (id bigint primary key, k text)")
    db.let_relay_in("public.t")
    for number in ids:
        db.query("insert into public.t values (%s, 'a')", (number,))
    running = relay(CONFIG.format(dsn=db.dsn), until_empty=True)
    assert running.wait() == 0
    assert db.value("select count(*) from public.t") == 0
    claims = int(re.search(r" claims=(\d+)", running.logged("queue.stats")[-1]).group(1))
    assert claims < 300


by = pytest.mark.parametrize("priority", ["null", "'urgency'"], ids=["by id", "by priority"])


def take_one(db, worker, calls=300):
    """The id that one of so many calls takes, each of which moves the marks."""
    for _ in range(calls):
        db.query("update outbox.take_mark set due_at = '-infinity'")
        taken = worker.take()
        if taken:
            assert worker.done(taken[0].token)
            return taken[0].id
    raise AssertionError(f"nothing in {calls} calls")


def worker_of(db, priority, condition="true"):
    db.query("create table public.t (id bigint primary key, k text, urgency int not null default 0); create index on public.t (k, id);"
             f" create index on public.t (urgency desc, id); grant select, delete on public.t to {OWNER_ROLE}")
    owner(db, f"select outbox.queue_set('orders', 'public.t', key_column => 'k', priority_column => {priority}, condition => $${condition}$$)")
    return Worker(db, "orders")


@by
@wide
def test_workers_take_ids_that_lie_far_apart_in_few_calls(db, ids, priority):
    worker = worker_of(db, priority)
    for keys in ("a", "b"):
        for number in ids:
            db.query("insert into public.t values (%s, %s)", (number, "a" if keys == "a" else f"b{number}"))
        assert sorted(take_one(db, worker) for _ in ids) == list(ids), keys
    for number in reversed(ids):
        db.query("insert into public.t values (%s, 'late')", (number,))
        assert take_one(db, worker) == number
    worker.close()


@pytest.mark.parametrize("late", [BOTTOM, -5, 10**15, 1_600_000_000_000_000_000])
def test_workers_find_what_is_far_below_the_others_in_few_calls(db, late):
    worker = worker_of(db, "null")
    for number in range(5):
        db.query("insert into public.t values (%s, %s)", (1_700_000_000_000_000_000 + number, f"k{number}"))
        take_one(db, worker)
    assert db.value("select max(low) from outbox.take_mark") >= 1_700_000_000_000_000_000
    db.query("insert into public.t values (%s, 'late')", (late,))
    assert take_one(db, worker) == late
    worker.close()


SLOW = "case when e.k = 'slow' then pg_sleep(0.025) is not null else true end"  # a walk over its row takes so long


@by
def test_workers_find_what_is_far_below_the_others_in_few_calls_though_each_call_is_slow(db, priority):
    worker = worker_of(db, priority, condition=SLOW)
    db.query("insert into public.t values (%s, 'slow')", (TOP,))
    assert [taken.id for taken in worker.take()] == [TOP]
    with pytest.raises(AssertionError, match="nothing in 3 calls"):  # the marks move to what is leased
        take_one(db, worker, calls=3)
    assert db.value("select max(low) from outbox.take_mark") == TOP
    db.query("insert into public.t values (%s, 'late')", (BOTTOM,))
    assert take_one(db, worker, calls=100) == BOTTOM
    worker.close()


@by
def test_a_stretch_that_is_slow_to_walk_is_followed_by_a_shorter_one(db, priority):
    worker = worker_of(db, priority, condition=SLOW)
    db.query("insert into public.t values (1, 'slow'), (1000000000, 'last')")
    assert sorted(taken.id for taken in worker.take(2)) == [1, 1000000000]

    def spans():
        with pytest.raises(AssertionError, match="nothing in 1 calls"):
            take_one(db, worker, calls=1)
        return [span for (span,) in db.query("select sweep_span from outbox.take_mark order by moved_at desc limit 2")]

    wait_until(lambda: operator.lt(*spans()), what="a span shorter than the one before")
    worker.close()
