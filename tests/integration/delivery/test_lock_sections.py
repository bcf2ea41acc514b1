"""The statements that lock a claim's keys, one for each section of the claim: what they lock and what they say, whatever the plan."""

import re

import pytest

from tests.support.sql_files import rendered

NAMES = {"state": "outbox", "table": "outbox.events", "id": "e.id", "key": "e.aggregateid", "key_type": "text", "where": "true",
         "parked_key": "case when p.key not like 'odd%' then p.key end", "lock_class": "7",
         "lock_hash": "case when k.keyless is null then hashtext(k.key::text) else hashint8(k.keyless) end",
         "try_lock": "pg_try_advisory_xact_lock(7, case when k.keyless is null then hashtext(k.key::text) else hashint8(k.keyless) end)"}
PLAIN = {"late": "false", "more": "false"}
FIRST = {"late": "f.keyless is null and exists (select from outbox.events e where (e.aggregateid, e.id) >= (f.key, $10::bigint)"
                 " and (e.aggregateid, e.id) < (f.key, f.low) order by e.aggregateid desc, e.id desc offset 0)",
         "more": "l.ok and l.high > l.low"}
STATEMENTS = {"newest": ("lock_ids.sql", {"order": "desc", "near": "high", "behind": "<=", **PLAIN}),
              "first": ("lock_ids.sql", {"order": "desc", "near": "high", "behind": "<=", **FIRST}),
              "oldest": ("lock_ids.sql", {"order": "asc", "near": "low", "behind": ">=", **PLAIN}),
              "named": ("lock_named.sql", {}), "due": ("lock_due.sql", {})}
PLANNERS = ["", "set enable_indexscan = off; set enable_bitmapscan = off", "set enable_hashagg = off",
            "set enable_hashjoin = off; set enable_material = off", "set plan_cache_mode = force_custom_plan"]
FREE = ["k0", "k1", "k2", "k5", "k6", "k7", "k8", "k9"]  # and event 22: see fill()


@pytest.fixture(params=PLANNERS, ids=["as-it-is", "no-index", "no-hashing", "no-joins", "custom"])
def session(request, db):
    """A transaction of a relay, with the statements prepared."""
    connection = db.connect()
    with connection.cursor() as cursor:
        cursor.execute(f"set plan_cache_mode = force_generic_plan; {request.param}")
        for name, (path, end) in STATEMENTS.items():
            cursor.execute(f"prepare {name} as " + rendered("claim", path, **NAMES, **end))
        connection.commit()
        cursor.execute("begin")
        yield cursor
    connection.close()


class Answer:
    """What a section says, and what it and those before it have locked."""

    def __init__(self, session):
        (self.seen_min, self.seen_max, self.missed_min, self.missed_max, self.locked, self.tried, self.cut_min, self.cut_max, self.full,
         names, keyless_ids, missed, low, self.waits) = session.fetchone()
        assert session.fetchone() is None
        self.seen, self.cut = (self.seen_min, self.seen_max), (self.cut_min, self.cut_max)
        self.missed = {key: (int(low), int(high)) for key, low, high in re.findall(r"{([^{},]+),(-?\d+),(-?\d+)}", missed or "")}
        assert missed is None or self.missed
        self.low_keys = {int(event): key for key, event in re.findall(r'{([^{},]+),(-?\d+),-?\d+}', low or "")}
        self.low_ids = sorted(self.low_keys)
        assert low is None or self.low_ids
        self.keys, self.keyless_ids = sorted(elements(names)), sorted(map(int, elements(keyless_ids)))
        session.execute("select current_setting('courier.claim'), current_setting('courier.keyless')")
        assert session.fetchone() == (names, keyless_ids)
        session.execute("select count(*) from pg_locks where locktype = 'advisory' and classid = 7 and pid = pg_backend_pid()")
        assert session.fetchone()[0] == len(self.keys) + len(self.keyless_ids)


def elements(text):
    return [element for element in text[1:-1].split(",") if element]


def lock_ids(session, end, ids, keys=100, most=100, rows=100, busy=((), ()), later=False, floor=0):
    """One end of these ids; `later`: behind other sections of the same claim."""
    session.execute(f"execute {end}(%s, %s, %s, %s, %s, 'orders', %s::text[], %s::bigint[], %s, %s)",
                    (*ids, rows, keys, most, *map(list, busy), int(later), floor))
    return Answer(session)


def lock_due(session, keys=100, most=100, busy=((), ()), later=False):
    session.execute("execute due(%s, %s, 'orders', %s::text[], %s::bigint[], %s)", (keys, most, *map(list, busy), int(later)))
    return Answer(session)


def lock_named(session, *keys):
    session.execute("execute named(%s::text[], 'orders')", (list(keys),))
    return Answer(session)


def anew(session):
    session.execute("rollback; begin")


def fill(db, others=0):
    """Ids 1 to 20 are of ten keys, 21 and 22 of none; k3 and event 21 are closed, k4 has waited long enough. So many others are closed,
    too: three and 61 are read as a whole."""
    db.query("insert into outbox.parked (queue, key, event_id, next_at) select 'orders', 'other' || n, n, 'infinity' from generate_series(1, %s) n", [others])
    db.query("insert into outbox.events (aggregateid) select 'k' || n % 10 from generate_series(1, 20) n; "
             "insert into outbox.events (aggregateid) values (null), (null); "
             "insert into outbox.parked (queue, key, keyless, event_id, next_at) values ('orders', 'k3', false, 3, 'infinity'),"
             " ('orders', '', true, 21, 'infinity'), ('orders', 'k4', false, 4, now()), ('others', 'k5', false, 5, 'infinity')")


def hold(db, *locks):
    """Another session has these."""
    other = db.connect()
    other.cursor().execute("begin; select " + ", ".join(f"pg_advisory_xact_lock(7, {lock})" for lock in locks))
    return other


# ---- ids ----

@pytest.mark.parametrize("others", [0, 61, 62, 500])
def test_what_is_found_and_free_is_locked_and_what_waits_is_left_alone(db, session, others):
    fill(db, others)
    for end in "newest", "oldest":
        answer = lock_ids(session, end, (1, 22))
        assert (answer.keys, answer.keyless_ids, answer.locked, answer.tried) == (FREE, [22], 9, 9)
        assert (answer.seen, answer.cut, answer.full) == ((1, 22), (None, None), 0)
        assert (answer.missed, answer.missed_min, answer.missed_max, answer.low_ids) == ({}, None, None, [])
        assert answer.waits == min(3 + others, 65)
        anew(session)


def test_stretch_is_looked_at_from_its_end(db, session):
    fill(db)
    for end, ids in ("newest", (17, 18)), ("oldest", (8, 9)):
        answer = lock_ids(session, end, (8, 18), rows=2)
        assert (answer.seen, answer.full, answer.cut) == (ids, 1, (None, None))
        anew(session)


def test_keys_of_a_section_before_are_not_locked_again_and_take_no_place(db, session):
    fill(db)
    answer = lock_ids(session, "newest", (18, 22), keys=2)
    assert (answer.keys, answer.keyless_ids, answer.cut) == (["k0"], [22], (18, 19))
    answer = lock_ids(session, "newest", (18, 20), later=True)  # event 22 is not seen, and k0 is locked
    assert (answer.keys, answer.keyless_ids, answer.locked, answer.tried) == (["k0", "k8", "k9"], [22], 2, 2)
    answer = lock_ids(session, "oldest", (8, 22), keys=1, later=True)
    assert (answer.keys, answer.keyless_ids, answer.locked, answer.tried) == (["k0", "k1", "k8", "k9"], [22], 1, 1)
    assert answer.cut == (12, 17)  # of k2, k5, k6 and k7
    assert (answer.seen, answer.missed) == ((8, 22), {})


def test_first_section_does_not_look_at_what_another_transaction_has_left(db, session):
    fill(db)
    park(db)
    session.execute("select set_config('courier.claim', '{k1,k6}', false), set_config('courier.keyless', '{22}', false); commit; begin")
    answer = lock_ids(session, "oldest", (1, 22), keys=2, most=2)
    assert (answer.keys, answer.keyless_ids, answer.locked) == (["k1", "k2"], [], 2)
    anew(session)
    answer = lock_due(session, keys=2, most=2)
    assert (answer.keys, answer.keyless_ids, answer.locked) == (["k6"], [22], 2)
    anew(session)
    answer = lock_named(session)
    assert (answer.keys, answer.keyless_ids, answer.locked, answer.tried) == ([], [], 0, 0)


@pytest.mark.parametrize("keys, most, locked", [(100, 5, ["k1", "k2"]), (1, 5, ["k1"]), (2, 100, ["k1", "k2"]), (2, 4, ["k1"])])
def test_places_are_counted_over_sections(db, session, keys, most, locked):
    fill(db)
    assert lock_ids(session, "newest", (19, 22)).locked == 3
    answer = lock_ids(session, "oldest", (1, 12), keys=keys, most=most, later=True)
    assert (answer.keys, answer.locked, answer.tried) == (sorted(["k0", "k9"] + locked), len(locked), len(locked))
    assert answer.cut[0] == (5 if len(locked) == 2 else 2)


@pytest.mark.parametrize("keys, most", [(100, 3), (100, 2), (0, 100)])
def test_without_a_place_nothing_is_looked_at(db, session, keys, most):
    fill(db)
    assert lock_ids(session, "newest", (19, 22)).locked == 3
    answer = lock_ids(session, "oldest", (1, 22), keys=keys, most=most, later=True, floor=100, busy=(["k1"], []))
    assert (answer.keys, answer.keyless_ids, answer.locked, answer.tried) == (["k0", "k9"], [22], 0, 0)
    assert (answer.seen, answer.cut, answer.full) == ((None, None), (None, None), 1)
    assert (answer.missed, answer.low_ids, answer.waits) == ({}, [], 3)


def test_places_go_to_the_keys_that_lie_nearest_to_the_end(db, session):
    fill(db)
    answer = lock_ids(session, "newest", (1, 22), keys=3)
    assert (answer.keys, answer.keyless_ids, answer.cut) == (["k0", "k9"], [22], (1, 18))
    anew(session)
    answer = lock_ids(session, "oldest", (1, 22), keys=3)
    assert (answer.keys, answer.keyless_ids, answer.cut) == (["k1", "k2", "k5"], [], (6, 22))
    anew(session)
    answer = lock_ids(session, "oldest", (5, 22), keys=4, rows=4)
    assert (answer.keys, answer.cut, answer.full) == (["k5", "k6", "k7", "k8"], (None, None), 1)
    anew(session)
    for keys in 9, 10:
        answer = lock_ids(session, "oldest", (1, 22), keys=keys, rows=50)
        assert (answer.locked, answer.cut) == (9, (None, None))
        anew(session)


def test_behind_a_slow_sink_keys_whose_first_event_is_there_have_the_first_places(db, session):
    fill(db)
    db.query("insert into outbox.events (aggregateid) values ('new'), ('k9')")  # events 23 and 24
    answer = lock_ids(session, "first", (23, 24), keys=1)
    assert (answer.keys, answer.cut) == (["new"], (24, 24))
    anew(session)
    answer = lock_ids(session, "first", (23, 24), keys=2)
    assert (answer.keys, answer.cut) == (["new"], (24, 24))
    anew(session)
    answer = lock_ids(session, "first", (23, 24), keys=1, floor=24)  # above the floor k9 has no other
    assert (answer.keys, answer.cut) == (["k9"], (23, 23))
    anew(session)
    answer = lock_ids(session, "first", (1, 13), keys=3)
    assert (answer.keys, answer.missed) == (["k0", "k1", "k2"], {"k1": (1, 11), "k2": (2, 12)})  # and of these there are more


def test_section_is_full_when_it_has_seen_as_many_rows_as_it_may(db, session):
    fill(db)
    for end in "newest", "oldest":
        for rows, full in (21, 1), (22, 1), (23, 0):
            assert lock_ids(session, end, (1, 22), rows=rows).full == full
            anew(session)
        assert lock_ids(session, end, (23, 99), rows=1).full == 0
        assert lock_ids(session, end, (4, 4), rows=1).full == 1  # whatever becomes of them
        anew(session)


def test_empty_stretch_has_nothing(db, session):
    fill(db)
    answer = lock_ids(session, "newest", (30, 2**63 - 1))
    assert (answer.keys, answer.locked, answer.seen, answer.full, answer.waits) == ([], 0, (None, None), 0, 3)
    assert lock_ids(session, "oldest", (9, 8)).seen == (None, None)


def test_what_another_session_holds_is_told(db, session):
    fill(db)
    other = hold(db, "hashtext('k8')", "hashtext('k2')", "hashint8(22)")
    for end in "newest", "oldest":
        answer = lock_ids(session, end, (3, 22))
        assert (answer.missed, answer.keyless_ids, answer.locked, answer.tried) == ({"k8": (8, 18), "k2": (12, 12)}, [], 6, 9)
        assert (answer.missed_min, answer.missed_max) == (8, 22)
        anew(session)
    answer = lock_ids(session, "oldest", (1, 22), keys=2)
    assert (answer.keys, answer.missed, answer.tried, answer.cut) == (["k1"], {"k2": (2, 12)}, 2, (5, 22))  # it had a place
    other.close()


def test_what_is_busy_is_left_out_and_told(db, session):
    fill(db)
    for end in "newest", "oldest":
        answer = lock_ids(session, end, (1, 22), busy=(["k1", "k4", "elsewhere"], [22]), floor=100)
        assert (answer.keys, answer.keyless_ids, answer.tried) == (["k0", "k2", "k5", "k6", "k7", "k8", "k9"], [], 7)
        assert answer.missed == {"k1": (1, 11), "k4": (4, 14)} and (answer.missed_min, answer.missed_max) == (None, None)
        assert answer.low_ids == [1, 2, 5, 6, 7, 8, 9, 10, 22] and (answer.low_keys[1], answer.low_keys[22]) == ("k1", '""')
        anew(session)
    answer = lock_ids(session, "oldest", (1, 22), keys=1, busy=(["k1"], []))
    assert (answer.keys, answer.cut) == (["k2"], (5, 22))  # it takes no place
    anew(session)
    answer = lock_ids(session, "oldest", (20, 22), keys=1, busy=(["22"], [20]))  # a key is no event, and an event no key
    assert (answer.keys, answer.cut, answer.missed) == (["k0"], (22, 22), {})


@pytest.mark.parametrize("others", [0, 61, 62])
@pytest.mark.parametrize("ids, floor, low", [
    ((1, 20), 1, []), ((1, 20), 5, [1, 2]), ((1, 20), 6, [1, 2, 5]), ((2, 20), 100, [2, 5, 6, 7, 8, 9, 10, 11]),
    ((3, 4), 100, []), ((13, 14), 100, []),  # an entry is there for their keys
    ((5, 5), 100, [5]),  # one of another queue is
    ((21, 21), 100, []), ((21, 22), 100, [22])])  # events without a key have each its own
def test_least_ids_below_the_floor_of_keys_that_do_not_wait_are_told(db, session, others, ids, floor, low):
    fill(db, others)
    for end in "newest", "oldest":
        assert lock_ids(session, end, ids, floor=floor).low_ids == low
        anew(session)


def test_low_ids_are_told_of_keys_without_a_place_but_not_of_those_that_a_section_before_has_locked(db, session):
    fill(db)
    assert lock_ids(session, "newest", (17, 22), floor=10).low_ids == []
    answer = lock_ids(session, "oldest", (1, 22), keys=1, later=True, floor=10)
    assert (answer.keys, answer.keyless_ids) == (["k0", "k1", "k7", "k8", "k9"], [22])
    assert answer.low_ids == [1, 2, 5, 6]


# ---- waits that are over ----

def park(db):
    """Beside what fill() does: odd1 is no key of this table."""
    db.query("insert into outbox.parked (queue, key, keyless, event_id, next_at) values"
             " ('orders', 'k6', false, 6, now() - interval '2s'), ('orders', 'odd1', false, 9, now() - interval '5s'),"
             " ('orders', '', true, 22, now() - interval '3s'), ('orders', 'k7', false, 7, now() - interval '1s'),"
             " ('orders', 'k8', false, 8, now() + interval '1h'), ('others', 'k9', false, 9, now() - interval '1h')")


def test_keys_whose_wait_is_over_are_locked_the_longest_over_first(db, session):
    fill(db)
    park(db)
    answer = lock_due(session)
    assert (answer.keys, answer.keyless_ids, answer.locked, answer.tried) == (["k4", "k6", "k7"], [22], 4, 4)
    assert (answer.seen, answer.cut, answer.full, answer.missed, answer.low_ids, answer.waits) == ((None, None), (None, None), 0, {}, [], None)
    for keys, most, locked in (1, 100, []), (2, 100, ["k6"]), (100, 3, ["k6", "k7"]), (3, 2, ["k6"]):
        anew(session)
        answer = lock_due(session, keys, most)
        assert (answer.keys, answer.keyless_ids) == (locked, [22])
    for keys, most in (0, 100), (100, 0), (100, -1):
        anew(session)
        assert lock_due(session, keys, most).locked == 0


def test_waits_that_are_over_leave_out_what_is_busy_or_locked_before(db, session):
    fill(db)
    park(db)
    answer = lock_due(session, keys=2, busy=(["k6", ""], [22, 7]))
    assert (answer.keys, answer.keyless_ids, answer.missed) == (["k4", "k7"], [], {})
    anew(session)
    assert lock_named(session, "k1").keys == ["k1"]
    answer = lock_due(session, keys=2, most=3, later=True)
    assert (answer.keys, answer.keyless_ids, answer.locked) == (["k1", "k6"], [22], 2)
    answer = lock_due(session, keys=2, most=4, later=True)
    assert (answer.keys, answer.keyless_ids, answer.locked) == (["k1", "k6", "k7"], [22], 1)
    answer = lock_due(session, keys=2, most=4, later=True)
    assert answer.locked == 0


def test_waits_that_are_over_and_locked_elsewhere_are_told(db, session):
    fill(db)
    park(db)
    other = hold(db, "hashtext('k6')", "hashint8(22)")
    answer = lock_due(session, keys=3)
    assert (answer.keys, answer.keyless_ids, answer.locked, answer.tried) == (["k7"], [], 1, 3)
    assert answer.missed == {"k6": (1, 0)} and (answer.missed_min, answer.missed_max) == (None, None)  # it was not found by an id
    other.close()


# ---- names ----

@pytest.mark.parametrize("others", [0, 500])
def test_keys_are_locked_by_their_names_wherever_their_events_are(db, session, others):
    fill(db, others)
    answer = lock_named(session, "k1", "k3", "k4", "k5", "elsewhere")  # k3 and k4 wait
    assert (answer.keys, answer.keyless_ids, answer.locked, answer.tried) == (["elsewhere", "k1", "k5"], [], 3, 3)
    assert (answer.seen, answer.cut, answer.full, answer.missed, answer.low_ids, answer.waits) == ((None, None), (None, None), 0, {}, [], None)


def test_names_that_are_locked_elsewhere_are_told(db, session):
    fill(db)
    other = hold(db, "hashtext('k1')")
    answer = lock_named(session, "k1", "k2")
    assert (answer.keys, answer.locked, answer.tried, answer.missed) == (["k2"], 1, 2, {"k1": (1, 0)})
    assert (answer.missed_min, answer.missed_max) == (None, None)
    other.close()


def test_all_sections_of_a_claim_leave_their_names_together(db, session):
    fill(db)
    park(db)
    lock_named(session, "k1", "elsewhere")
    lock_due(session, keys=2, later=True)
    lock_ids(session, "oldest", (1, 10), keys=2, later=True)
    answer = lock_ids(session, "newest", (11, 22), later=True)
    assert (answer.keys, answer.keyless_ids) == (["elsewhere", "k0", "k1", "k2", "k5", "k6", "k9"], [22])
    assert answer.locked == 2
    assert (answer.missed, answer.seen) == ({}, (11, 22))
