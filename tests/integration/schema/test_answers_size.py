"""The views that say how queues stand read no more because there is more. By the buffers that they read: times are those of the
machine, and bench/answers.py measures them."""

import pytest

from bench.answers import KINDS, fill, of_view, park, read_buffers
from tests.conftest import migrate

ROWS, ENTRIES = 200_000, 60_000
MOST = {"overview": 3000, "failures": 700, "stuck": 300, "by_hour": 7000, "workers": 300}


@pytest.fixture(scope="module")
def large(pg):
    database = pg.create_database(name="large_answers")
    migrate(database)
    fill(database, ROWS)
    yield database
    database.drop()


@pytest.fixture(scope="module", params=KINDS)
def parked(request, large):
    park(large, ENTRIES, request.param)
    return large, request.param


@pytest.mark.parametrize("view, most", MOST.items())
def test_a_view_reads_few_pages_of_much(parked, view, most):
    assert read_buffers(parked[0], of_view(view)) <= most
    for table in ("events", "archive"):
        pages = (f"select sum(pg_relation_size(relid)) / current_setting('block_size')::int from (select 'outbox.{table}'::regclass"
                 f" union select p.relid from pg_partition_tree('outbox.{table}') p) t (relid)")
        assert parked[0].value(pages) > 4000, "much there is"


def test_few_that_failed_or_are_closed_are_counted_among_many_that_wait(parked):
    db, kind = parked
    (counts,) = db.query("select running, parked, closed, dead > 10000, estimated from outbox.overview")
    few = {"running": 10, "parked": 10, "closed": 10}
    assert {name: count for name, count in zip(few, counts) if name != kind} == {name: 10 for name in few if name != kind}
    assert set(counts[4]) & {"running", "parked", "closed", "delayed"} >= {kind} and counts[3]
    assert not set(counts[4]) & ({"running", "parked", "closed"} - {kind})
    many = db.value(f"select {kind} from outbox.overview")
    assert 0.8 * ENTRIES < many < 1.2 * ENTRIES


@pytest.mark.parametrize("after, limit", [("5", 10_000), ("n - 1", 300_000)], ids=["all the same", "each the one before"])
@pytest.mark.parametrize("ago", ["0 s", "1 hour"])
def test_many_that_wait_for_others_are_not_all_followed(large, after, limit, ago):
    large.query("truncate outbox.parked")
    large.query("insert into outbox.parked (queue, key, event_id, after_id, next_at, first_failed_at)"
                f" select 'tasks', 'key-' || n, n, {after}, now() + interval '1 hour', clock_timestamp() - interval '{ago}' from generate_series(10, 20009) n")
    large.query("vacuum analyze outbox.parked")
    assert read_buffers(large, of_view("stuck")) <= limit
    assert large.value("select count(*) from outbox.stuck") == (0 if ago == "0 s" else 1000)
