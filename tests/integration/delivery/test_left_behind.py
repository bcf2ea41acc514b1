"""What somebody has for long keeps no reads among what is dead: the floor goes past it, and its key is read from it on."""

import json
from contextlib import closing

import pytest

from tests.support.servers import wait_until
from tests.support.sql_files import rendered
from tests.support.statement_log import StatementLog

PUT = "insert into outbox.events (aggregateid, type) values (%s, 't') returning id"
CONFIG = """
database: "{dsn}"
sinks: {{ log: {{ type: file, path: "{path}" }} }}
queues: {{ orders: {{ sink: log, keys_per_claim: {keys} }} }}
"""
SQL = {"table": "outbox.events", "where": "true", "state": "outbox", "id": "e.id", "key": "e.aggregateid", "key_type": "text",
       "lock_hash": "case when k.keyless is null then hashtext(k.key::text) else hashint8(k.keyless) end", "text_once": "",
       "columns": "e.id as id, e.aggregateid as key", "key_order": "e.aggregateid, e.id",
       "parked_key": "p.key",
       "key_range": "(e.aggregateid, e.id) >= (k.name, least($2::bigint, p.event_id, l.id)) and (e.aggregateid, e.id) <= (k.name, 9223372036854775807)"}


# ---- as a whole ----

def lock_row(session, head):
    session.cursor().execute("select from outbox.events where id = %s for update", [head])


def lock_key(session, head):
    session.cursor().execute("select pg_advisory_xact_lock(outbox.lock_class_of('outbox.events'), outbox.lock_hash('text', 'a', 0)), %s", [head])


def lease_key(session, head):
    session.cursor().execute("insert into outbox.parked (queue, key, event_id, attempts, next_at, token, worker, taken_id, taken_at, lease)"
                             " values ('orders', 'a', %s, 0, now() + interval '1 day', gen_random_uuid(), 'w', %s, now(), '1 day')", [head, head])
    session.commit()


def delivered(path):
    return [json.loads(line)["id"] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("keys", [1, 64])
@pytest.mark.parametrize("hold", [lock_row, lock_key, lease_key])
def test_what_somebody_has_is_passed_and_delivered_in_order(db, relay, tmp_path, hold, keys):
    path, log = tmp_path / "events.jsonl", StatementLog(db)
    ids = [db.value(PUT, ["a"]) for _ in range(3)]
    with closing(db.connect(autocommit=False)) as session:
        hold(session, ids[0])
        relay(CONFIG.format(dsn=db.dsn, path=path, keys=keys))
        for _ in range(2):  # the second time, what the relay cannot have claimed before
            wait_until(lambda: others_are_read_from(db, log) > ids[-1], what="the floor to pass what somebody has")
            ids += [db.value(PUT, ["a"]) for _ in range(3)]
        wait_until(lambda: others_are_read_from(db, log) > ids[-1], what="the floor to pass all of it")
    db.query("delete from outbox.parked")  # the entry of the lease: the key is read from where the relay knows
    wait_until(lambda: db.value("select count(*) from outbox.events") == 0, what="everything to be delivered")
    assert [event for event in delivered(path) if event in ids] == ids


def others_are_read_from(db, log):
    """The floor, of the last look for it."""
    db.query(PUT, ["b"])
    _, found, look = log.text().rpartition("as floor")
    parameters = look.partition("parameters: $1 = '")[2] if found else ""
    return int(parameters.partition("'")[0] or 0)


# ---- how far it still holds ----

@pytest.fixture
def look(db):
    """look(from, to, left, rows, movers) -> the statement's rows."""
    with closing(db.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("prepare look as " + rendered("horizon", "horizon_floor.sql", **SQL))

        def ask(first, last, left=(), rows=100, movers=None):
            cursor.execute("select set_config('courier.movers', %s, false)", ["" if movers is None else movers])
            cursor.execute("execute look(%s, %s, 'orders', %s, %s, %s)", (first, last, rows, *arrays(left)))
            return cursor.fetchall()

        yield ask


def arrays(left):
    return [key for key, _ in left], [event for _, event in left]


def fill(db):
    """Ids 1 to 9 are of a, b, c, a, b, c, a, b, c; 10 and 11 of none."""
    db.query("insert into outbox.events (aggregateid) select substr('abc', (n - 1) % 3 + 1, 1) from generate_series(1, 9) n; "
             "insert into outbox.events (aggregateid) values (null), (null)")


@pytest.mark.parametrize("left, floor, key, leasts", [
    ([], 1, "a", [None]),
    ([("a", 1)], 2, "b", [1]),
    ([("a", 4)], 1, "a", [4]),
    ([("a", 1), ("b", 2)], 3, "c", [1, 2]),
    ([("b", 1), ("a", 1), ("c", 1)], 10, None, [2, 1, 3]),
    ([("a", 1), ("b", 2), ("c", 3), (None, 10)], 11, None, [1, 2, 3, 10]),
    ([("a", 1), ("gone", 1), (None, 5)], 2, "b", [1, None, None])])
def test_events_of_a_key_that_was_left_behind_are_passed(db, look, left, floor, key, leasts):
    fill(db)
    rows = look(1, 11, left)
    assert {row[0] for row in rows} == {floor} and {row[3] for row in rows} == {key} and {row[2] for row in rows} == {None}
    assert [row[5] for row in rows] == leasts and [row[4] for row in rows] == (list(range(1, len(left) + 1)) or [None])


def test_look_ends_at_so_many_rows_and_goes_on(db, look):
    fill(db)
    left = [("a", 1), ("b", 1), ("c", 1)]
    assert [row[:3] for row in look(1, 11, left, rows=4)] == [(None, None, 4)] * 3
    assert [row[:3] for row in look(5, 9, left)] == [(None, None, None)] * 3


def test_least_id_moves_with_what_is_gone(db, look):
    fill(db)
    db.query("delete from outbox.events where id in (1, 4, 2, 5, 8)")
    assert [row[5] for row in look(10, 10, [("a", 1), ("b", 1), ("c", 1)])] == [7, None, 3]
    assert look(5, 6, [("a", 1)])[0][5] is None  # it need not be: event 7 is looked at when the floor gets there
    assert look(8, 6, [("a", 1)])[0][5] == 7  # it has passed that


HASH = "select hashtext('a')::bigint & 4294967295"


@pytest.mark.parametrize("entry, token, first, movers, least", [
    (1, False, 5, None, 1), (1, False, 5, "{}", None), (1, False, 5, "{%s}", 1), (2, False, 5, "{}", 1), (1, True, 5, "{}", 1),
    (1, False, 9, "{}", 1), (1, False, 6, "{}", None)],  # the key's event 7 has settled since the last look: nobody knows who has seen it
    ids=["nobody has looked", "covered", "about to be moved", "behind it", "leased", "more since", "nothing since"])
def test_what_an_entry_covers_need_not_be_remembered(db, look, entry, token, first, movers, least):
    fill(db)
    db.query("insert into outbox.parked (queue, key, event_id, attempts, next_at) values ('orders', 'a', %s, 0, 'infinity')", [entry])
    if token:
        db.query("update outbox.parked set token = gen_random_uuid(), worker = 'w', taken_id = 1, taken_at = now(), lease = '1 day'")
    assert look(first, 5 if first > 5 else 11, [("a", 1)], movers=movers and movers.replace("%s", str(db.value(HASH))))[0][5] == least


def test_event_without_a_key_that_waits_need_not_be_remembered(db, look):
    fill(db)
    db.query("insert into outbox.parked (queue, key, keyless, event_id, attempts, next_at) values ('orders', '', true, 10, 1, 'infinity')")
    assert [row[5] for row in look(11, 11, [(None, 10), (None, 11)])] == [None, 11]


# ---- how it is read ----

@pytest.mark.parametrize("statement", ["per_key_read.sql", "per_key_read_few.sql"])
@pytest.mark.parametrize("planner", ["", "set enable_hashjoin = off; set enable_hashagg = off", "set plan_cache_mode = force_custom_plan"])
@pytest.mark.parametrize("others", [0, 63, 64, 500])
def test_key_that_was_left_behind_is_read_from_its_least_id_on(db, statement, planner, others):
    fill(db)
    db.query("insert into outbox.parked (queue, key, event_id, next_at) select 'orders', 'other' || n, n, 'infinity' from generate_series(1, %s) n", [others])
    db.query("insert into outbox.parked (queue, key, event_id, attempts, next_at) values ('orders', 'c', 6, 1, now())")
    with closing(db.connect(autocommit=False)) as connection, connection.cursor() as cursor:
        cursor.execute(f"set plan_cache_mode = force_generic_plan; {planner}")
        cursor.execute("prepare read as " + rendered("claim", statement, **SQL))
        cursor.execute("select set_config('courier.claim', '{a,b,c,d}', true), set_config('courier.keyless', '{10,11}', true)")

        def read(left):
            cursor.execute("execute read('orders', 8, 100, 100, %s, %s)", arrays(left))
            found = {}
            for _, head, gone, event, key in cursor.fetchall():
                assert gone is None and (head == 6) == (key == "c")
                found.setdefault(key, []).append(event)
            return found

        usual = {"b": [8], "c": [6, 9], None: [10, 11]}
        assert read([]) == usual
        assert read([("a", 4), (None, 10)]) == {**usual, "a": [4, 7]}
        assert read([("a", 1), ("c", 5), ("d", 3), ("else", 1)]) == {**usual, "a": [1, 4, 7]}
        assert read([("c", 2), ("b", 9)]) == {**usual, "c": [3, 6, 9]}
