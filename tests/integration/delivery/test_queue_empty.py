"""What is asked to see that nothing is left to deliver: events where there may be some, and those that an entry points at."""

import pytest

from tests.support.sql_files import rendered

NAMES = {"state": "outbox", "table": "outbox.events", "id": "e.id", "key": "e.aggregateid", "where": "true",
         "behind_entry": "e.aggregateid = p.key and e.id >= p.event_id", "in_range": "e.id between r.lo and r.hi", "in_order": "order by e.id"}
EVERYWHERE = ([-2**63], [2**63 - 1])
ELSEWHERE = ([1, 30], [9, 2**63 - 1])  # 10 to 29 are known to have none


@pytest.fixture
def waiting(db):
    """Whether something waits in these ids, for queue `orders`."""
    connection = db.connect()
    with connection.cursor() as cursor:
        cursor.execute("set plan_cache_mode = force_generic_plan; set enable_sort = off; set enable_seqscan = off; prepare empty as " + rendered("horizon", "queue_empty.sql", **NAMES))

        def ask(ranges, where=None):
            if where:
                cursor.execute("prepare filtered as " + rendered("horizon", "queue_empty.sql", **{**NAMES, "where": where, "in_range": "true", "in_order": ""}))
            cursor.execute(f"execute {'filtered' if where else 'empty'}('orders', %s::bigint[], %s::bigint[])", ranges)
            return len(cursor.fetchall()) == 1
        yield ask
    connection.close()


def put(db, event_id, key="k"):
    db.query("insert into outbox.events (id, aggregateid, type) overriding system value values (%s, %s, 't')", [event_id, key])


def wait(db, event_id, next_at, key="k"):
    db.query("insert into outbox.parked (queue, key, keyless, event_id, next_at) values ('orders', %s, %s, %s, %s)",
             [key or "", key is None, event_id, next_at])


@pytest.mark.parametrize("key", ["k", None])
@pytest.mark.parametrize("event_id, found", [(1, True), (9, True), (10, False), (29, False), (30, True), (1000, True)])
def test_ids_are_looked_for_where_there_may_be_some(db, waiting, event_id, found, key):
    assert not waiting(EVERYWHERE)
    put(db, event_id, key)
    assert waiting(EVERYWHERE)
    assert waiting(ELSEWHERE) == found


@pytest.mark.parametrize("key", ["k", None])
@pytest.mark.parametrize("event_id", [5, 20, 40])
def test_event_that_waits_is_found_wherever_it_is_and_that_of_a_closed_key_is_not(db, waiting, event_id, key):
    put(db, event_id, key)
    wait(db, event_id, "2100-01-01", key)
    assert waiting(EVERYWHERE) and waiting(ELSEWHERE)
    db.query("update outbox.parked set next_at = 'infinity'")
    assert not waiting(EVERYWHERE) and not waiting(ELSEWHERE)
    db.query("update outbox.parked set queue = 'others', next_at = now()")
    assert waiting(ELSEWHERE) == (event_id != 20)


def test_entry_whose_events_are_gone_waits_for_nothing(db, waiting):
    wait(db, 20, "2100-01-01")
    assert not waiting(EVERYWHERE) and not waiting(ELSEWHERE)
    put(db, 19)
    assert not waiting(ELSEWHERE)  # before the one that it waits for
    put(db, 25)
    assert waiting(ELSEWHERE)


def test_with_a_filter_everything_is_looked_at(db, waiting):
    put(db, 20)
    put(db, 1, key="of another type")
    db.query("update outbox.events set type = 'other' where id = 1")
    assert waiting(ELSEWHERE, where="e.type = 't'")


def test_what_a_filter_hides_is_not_waited_for(db, waiting):
    put(db, 5)
    assert not waiting(EVERYWHERE, where="e.type = 'other'")
