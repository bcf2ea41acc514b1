"""The statements that lock a claim's events where none waits for another: what they lock and what they say, whatever the plan."""

import pytest

from tests.support.sql_files import rendered
from tests.support.tasks import LOCKS, SCHEMA

ROW = "select from public.tasks e where e.id between k.keyless and k.keyless order by e.id offset 0"
TRY = {"rows": f"(exists ({ROW} for update skip locked) and pg_try_advisory_xact_lock_shared(7, 0) is not null or not exists ({ROW}))",
       "advisory": "pg_try_advisory_xact_lock(7, hashint8(k.keyless))"}
IDS, RANKED, BY_RANK = "e.id between $1::bigint and $2::bigint", "e.id as id, e.priority as rank", "f.rank desc nulls last, f.id"
UNSETTLED = "e.id >= greatest($2::bigint, $9::bigint) and e.priority "
LOOKS = {"newest": ("e.id as id", IDS, "e.id desc", "f.id", "o.id", "true"), "oldest": ("e.id as id", IDS, "e.id", "f.id", "o.id", "true"),
         "urgent": (RANKED, f"{IDS} and coalesce(e.priority, -9223372036854775807 - 1) >= $10::bigint", "e.id desc", BY_RANK, "o.id", "true"),
         "top": (RANKED, UNSETTLED + "between $1::bigint and $1::bigint", "e.priority desc, e.id", BY_RANK, "o.id", "false"),
         "below": (RANKED, UNSETTLED + "< $1::bigint", "e.priority desc, e.id", BY_RANK, "o.rank", "false")}
PLANNERS = ["", "set enable_indexscan = off; set enable_bitmapscan = off", "set enable_hashagg = off; set enable_sort = off",
            "set enable_hashjoin = off; set enable_material = off; set enable_mergejoin = off", "set plan_cache_mode = force_custom_plan"]
LEAST, MOST = -2**63, 2**63 - 1


@pytest.fixture(params=[(kind, planner) for kind in LOCKS for planner in PLANNERS], ids=lambda param: f"{param[0]}-{PLANNERS.index(param[1])}")
def session(request, db):
    """A transaction of a relay, with the statements prepared, and a table of 20 tasks whose priorities are 0, 1, 2, 3, 4, 0, ..."""
    kind, planner = request.param
    names = {"state": "outbox", "table": "public.tasks", "id": "e.id", "where": "true", "parked_key": "null::text", "try_lock": TRY[kind]}
    db.psql(SCHEMA)
    db.query("insert into public.tasks (priority) select (n - 1) % 5 from generate_series(1, 20) n")
    connection = db.connect()
    with connection.cursor() as cursor:
        cursor.execute(f"set plan_cache_mode = force_generic_plan; {planner}")
        for name, look in LOOKS.items():
            text = rendered("claim", "lock_events.sql", **dict(zip(("seen", "stretch", "sort", "first", "by", "all"), look)), **names)
            cursor.execute(f"prepare {name} as {text}")
        cursor.execute("prepare due as " + rendered("claim", "lock_due.sql", **names))
        connection.commit()
        cursor.execute("begin")
        yield cursor
    connection.close()


class Answer:
    """What a section says, and what it and those before it have locked: that, and nothing else, is kept from others."""

    def __init__(self, session, db):
        row = session.fetchone()
        self.seen, self.missed, (self.locked, self.tried), self.cut, self.full = row[0:2], row[2:4], row[4:6], row[6:8], row[8]
        self.ids, self.waits = [int(text) for text in row[10][1:-1].split(",") if text], row[13]
        self.low = None if row[12] is None else sorted(int(part) for part in row[12].replace('""', "").strip("{}").replace("}", "").replace("{", "").split(",") if part)[::2]
        session.execute("select current_setting('courier.claim'), current_setting('courier.keyless')")
        assert session.fetchone() == ("{}", row[10])
        session.execute("select count(*) filter (where mode = 'ExclusiveLock'), count(*) filter (where mode = 'ShareLock') from pg_locks"
                        " where locktype = 'advisory' and classid = 7 and pid = pg_backend_pid()")
        exclusive, shared = session.fetchone()
        free = {id for id, in db.query("select id from public.tasks for update skip locked")}
        if exclusive:
            assert exclusive == len(self.ids) and shared == 0 and len(free) == 20
        else:
            assert free == set(range(1, 21)) - set(self.ids) and shared == bool(set(self.ids) & set(range(1, 21)))


def look(session, db, end, start, to, places=100, most=100, rows=100, busy=(), later=False, floor=LEAST, least=None):
    more = "" if least is None else f", {least}"
    session.execute(f"execute {end}(%s, %s, %s, %s, %s, 'tasks', %s::bigint[], %s, %s{more})",
                    (start, to, rows, places, most, list(busy), int(later), floor))
    return Answer(session, db)


def due(session, db, places, most=100, later=False):
    session.execute("execute due(%s, %s, 'tasks', '{}', '{}', %s)", (places, most, int(later)))
    return Answer(session, db)


def park(db, when, *ids):
    db.query("insert into outbox.parked (queue, key, keyless, event_id, next_at) select 'tasks', '', true, id, %s from unnest(%s::bigint[]) id", (when, list(ids)))


def test_the_lowest_ids_are_locked_until_there_are_enough(db, session):
    answer = look(session, db, "oldest", 1, 20, places=3)
    assert (answer.ids, answer.locked, answer.tried) == ([1, 2, 3], 3, 3)
    assert (answer.seen, answer.cut, answer.full, answer.missed, answer.waits) == ((1, 20), (4, 20), 0, (None, None), 0)
    answer = look(session, db, "newest", 1, 20, rows=4, later=True)
    assert (answer.ids, answer.locked, answer.seen, answer.cut, answer.full) == ([1, 2, 3, 17, 18, 19, 20], 4, (17, 20), (None, None), 1)


def test_the_places_count_over_all_sections(db, session):
    look(session, db, "oldest", 1, 20, places=3)
    answer = look(session, db, "urgent", 1, 20, most=5, later=True, least=LEAST)
    assert (answer.ids, answer.locked, answer.cut) == ([1, 2, 3, 5, 10], 2, (4, 20))
    answer = look(session, db, "top", 4, LEAST, most=5, later=True)
    assert (answer.locked, answer.seen, answer.full) == (0, (None, None), 1), "where there is no place nothing is looked at"


def test_what_waits_or_is_busy_is_left_out_and_what_waits_is_told(db, session):
    park(db, "infinity", 2, 3)
    answer = look(session, db, "oldest", 1, 20, places=3, busy=[4])
    assert (answer.ids, answer.seen, answer.cut, answer.missed, answer.waits) == ([1, 5, 6], (1, 20), (7, 20), (None, None), 1)


def test_what_others_have_locked_takes_no_place(db, session):
    other = db.connect()
    held = "select id from public.tasks where id in (1, 3) for update"
    other.cursor().execute(f"begin; {held}; select pg_advisory_xact_lock(7, hashint8(id::bigint)) from unnest('{{1,3}}'::int[]) id")
    session.execute("execute oldest(1, 20, 100, 2, 100, 'tasks', '{}', 0, 0)")
    row = session.fetchone()
    other.close()
    assert (row[10], row[2:4], row[4:6], row[6:8]) == ("{2,4}", (1, 3), (2, 4), (5, 20))


def test_the_most_urgent_come_first_from_a_place_on(db, session):
    answer = look(session, db, "top", 3, 9, places=2)
    assert (answer.ids, answer.cut, answer.full) == ([9, 14], (19, 19), 0)
    answer = look(session, db, "below", 3, LEAST, places=5, later=True)
    assert (answer.ids[2:], answer.seen, answer.cut) == ([3, 8, 13, 18, 2], (0, 2), (0, 1)), "it is told by priorities how far was looked"
    answer = look(session, db, "below", MOST, LEAST, rows=4, later=True)
    assert (answer.ids[7:], answer.full, answer.seen) == ([5, 10, 15, 20], 1, (4, 4))


def test_what_waits_is_no_row_that_was_looked_at_among_the_most_urgent(db, session):
    park(db, "infinity", 5, 10, 15)
    answer = look(session, db, "below", MOST, LEAST, rows=2, floor=8, busy=[9])
    assert answer.ids == [20, 14]


def test_beside_the_most_urgent_the_new_ones_come_that_are_more_urgent(db, session):
    db.query("update public.tasks set priority = 7 where id = 2; alter table public.tasks alter priority drop not null; update public.tasks set priority = null where id = 20")
    assert look(session, db, "urgent", 1, 20, least=4).ids == [2, 5, 10, 15]
    session.execute("rollback; begin")
    assert look(session, db, "urgent", 1, 20, least=LEAST).ids[-2:] == [16, 20]


def test_what_lies_below_the_floor_and_does_not_wait_is_told(db, session):
    park(db, "infinity", 2)
    assert look(session, db, "oldest", 1, 20, floor=4).low == [1, 3]


def test_waits_that_are_over_are_locked_and_what_is_gone_is_named(db, session):
    park(db, "-infinity", 7, 4711)
    park(db, "2000-01-01", 3)
    park(db, "infinity", 8)
    answer = due(session, db, 2)
    assert (sorted(answer.ids), answer.locked) == ([7, 4711], 2)
    answer = due(session, db, 2, most=3, later=True)
    assert (sorted(answer.ids), answer.locked) == ([3, 7, 4711], 1)
