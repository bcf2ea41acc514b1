"""Of the two statements that lock a claim's keys, the one that locks whatever it finds: as the other one locks, with less to say."""

import pytest

from tests.support.sql_files import rendered

NAMES = {"state": "outbox", "table": "outbox.events", "id": "e.id", "key": "e.aggregateid", "key_type": "text", "where": "true",
         "parked_key": "p.key", "lock_hash": "case when k.keyless is null then hashtext(k.key::text) else hashint8(k.keyless) end"}
NOTHING_NEW = 2**62
PLANNERS = ["", "set enable_indexscan = off; set enable_bitmapscan = off", "set enable_hashagg = off",
            "set enable_hashjoin = off; set enable_material = off", "set plan_cache_mode = force_custom_plan"]


@pytest.fixture(params=PLANNERS, ids=["as-it-is", "no-index", "no-hashing", "no-joins", "custom"])
def session(request, db):
    """A transaction of a relay, with the statements prepared."""
    connection = db.connect()
    with connection.cursor() as cursor:
        cursor.execute(f"set plan_cache_mode = force_generic_plan; {request.param}")
        for name, path in ("lock_some", "per_key_lock.sql"), ("lock_all", "per_key_lock_all.sql"):
            cursor.execute(f"prepare {name} as " + rendered("claim", path, **NAMES))
        connection.commit()
        cursor.execute("begin")
        yield cursor
    connection.close()


class Answer:
    """What a claim says, and what it has locked."""

    def __init__(self, session):
        rows = session.fetchall()
        (self.newest_left, self.oldest_left, self.seen_max, self.missed_min, self.missed_max, self.locked, names, keyless_ids,
         _, self.seen_min, self.thin, _, _, self.bare_min) = rows[0]
        self.missed = {row[8]: row[11:13] for row in rows if row[8] is not None}
        self.keys = sorted(name for name in names[1:-1].split(",") if name)
        self.keyless_ids = sorted(int(keyless) for keyless in keyless_ids[1:-1].split(",") if keyless)
        session.execute("select current_setting('courier.claim'), current_setting('courier.keyless')")
        assert session.fetchone() == (names, keyless_ids)
        session.execute("select count(*) from pg_locks where locktype = 'advisory' and classid = 7 and pid = pg_backend_pid()")
        assert session.fetchone()[0] == self.locked == len(self.keys) + len(self.keyless_ids)


def arrays(left):
    return [key for key, _ in left], [event for _, event in left]


def claim_all(session, keys=100, newest=(1, 0), oldest=(1, 0), rows=100, follow=(), fresh=NOTHING_NEW, floor=0, left=(), busy=((), ())):
    session.execute("execute lock_all(%s, %s, %s, %s, %s, %s, %s, %s, %s, 'orders', 7, %s, %s, %s, %s::text[], %s::bigint[])",
                    (fresh, *newest, *oldest, rows, keys, rows, list(follow), floor, *arrays(left), *map(list, busy)))
    return Answer(session)


def claim_some(session, keys=100, newest=(1, 0), oldest=(1, 0), rows=100, follow=(), fresh=NOTHING_NEW, floor=0, left=(), busy=((), ())):
    session.execute("execute lock_some(%s, %s, %s, %s, %s, %s, %s, 50, %s::text[], %s::bigint[], %s, 'orders', 7, 0, %s, null, %s, %s, %s)",
                    (fresh, *newest, *oldest, rows, keys, *map(list, busy), list(follow), rows, floor, *arrays(left)))
    return Answer(session)


def fill(db, others=0):
    """Ids 1 to 20 are of ten keys, 21 and 22 of none; k3 and event 21 are closed, k4 has waited long enough. So many others are closed,
    too: three and 61 are read as a whole."""
    db.query("insert into outbox.parked (queue, key, event_id, next_at) select 'orders', 'other' || n, n, 'infinity' from generate_series(1, %s) n", [others])
    db.query("insert into outbox.events (aggregateid) select 'k' || n % 10 from generate_series(1, 20) n; "
             "insert into outbox.events (aggregateid) values (null), (null); "
             "insert into outbox.parked (queue, key, keyless, event_id, next_at) values ('orders', 'k3', false, 3, 'infinity'),"
             " ('orders', '', true, 21, 'infinity'), ('orders', 'k4', false, 4, now()), ('others', 'k5', false, 5, 'infinity')")


@pytest.mark.parametrize("oldest, floor, bare", [
    ((1, 20), 1, None), ((1, 20), 100, 1), ((2, 20), 5, 2),
    ((3, 4), 100, None), ((13, 14), 100, None),  # an entry points at them, or at an event before them
    ((5, 5), 100, 5),  # one of another queue does
    ((21, 21), 100, None), ((21, 22), 100, 22)])  # events without a key have each its own
def test_the_least_event_below_the_floor_that_no_entry_covers_is_told(db, session, oldest, floor, bare):
    fill(db)
    assert [claim(session, oldest=oldest, floor=floor).bare_min for claim in (claim_all, claim_some)] == [bare, bare]


@pytest.mark.parametrize("left, bare", [
    ([("k1", 1)], 2), ([("k1", 1), ("k2", 2)], 5), ([("k1", 2), ("k2", 1)], 1),  # k1 is known from its event 11 on
    ([("k1", 1), ("k2", 2), ("k5", 5), ("k6", 6), ("k7", 7), ("k8", 8), ("k9", 9), ("k0", 10), (None, 21)], 22),
    ([("k1", 1), ("k2", 2), ("k5", 5), ("k6", 6), ("k7", 7), ("k8", 8), ("k9", 9), ("k0", 10), (None, 22)], None)])
def test_what_was_left_behind_is_not_bare(db, session, left, bare):
    fill(db)
    assert [claim(session, oldest=(1, 22), floor=100, left=left).bare_min for claim in (claim_all, claim_some)] == [bare, bare]


@pytest.mark.parametrize("others", [0, 61, 62, 500])
def test_what_is_found_and_free_is_locked_once(db, session, others):
    fill(db, others)
    for claim in claim_all, claim_some:
        answer = claim(session, newest=(11, 22), oldest=(1, 10), follow=["k1", "k3", "elsewhere"])
        assert answer.keys == ["elsewhere", "k0", "k1", "k2", "k4", "k5", "k6", "k7", "k8", "k9"]
        assert answer.keyless_ids == [22] and answer.missed == {}
        assert (answer.newest_left, answer.oldest_left, answer.seen_min, answer.seen_max) == (None, None, 1, 22)
        assert (answer.missed_min, answer.missed_max, answer.thin) == (None, None, 0)
        session.execute("rollback; begin")


def test_what_another_session_holds_is_told(db, session):
    fill(db)
    other = db.connect()
    with other.cursor() as cursor:
        cursor.execute("begin; select pg_advisory_xact_lock(7, hashtext('k8')), pg_advisory_xact_lock(7, hashint8(22)),"
                       " pg_advisory_xact_lock(7, hashtext('elsewhere'))")
    for claim in claim_all, claim_some:
        answer = claim(session, fresh=0, follow=["elsewhere"])
        assert answer.missed == {"elsewhere": (None, None), "k8": (8, 18)} and answer.keyless_ids == [] and len(answer.keys) == 8
        assert (answer.missed_min, answer.missed_max) == (8, 22)
        session.execute("rollback; begin")
    other.close()


def test_what_is_busy_is_left_out_and_told(db, session):
    fill(db)
    db.query("insert into outbox.parked (queue, key, keyless, event_id, next_at) values ('orders', '', true, 22, now())")
    for claim in claim_all, claim_some:
        answer = claim(session, fresh=0, busy=(["k1", "k4", "elsewhere"], [22]))  # k4 and event 22 have waited long enough
        assert answer.keys == ["k0", "k2", "k5", "k6", "k7", "k8", "k9"] and answer.keyless_ids == []
        assert answer.missed == {"k1": (1, 11), "k4": (4, 14)} and (answer.missed_min, answer.missed_max) == (None, None)
        session.execute("rollback; begin")


def test_no_more_is_locked_than_was_asked_for_and_the_rest_is_looked_at_again(db, session):
    fill(db)
    answer = claim_all(session, keys=8, newest=(11, 22), oldest=(1, 10), rows=4, follow=["k1", "k9"])
    assert answer.locked <= 8 and {"k1", "k9", "k4"} <= set(answer.keys)
    assert answer.oldest_left == 5
    assert answer.newest_left == 21  # there was room for one of these four
    session.execute("rollback; begin")
    answer = claim_all(session, keys=2, newest=(11, 22), oldest=(1, 10), rows=2, follow=["k1", "k9"])
    assert answer.keys == ["k1", "k9"]
    assert (answer.oldest_left, answer.newest_left, answer.seen_max) == (1, 22, None)


def test_rows_of_too_few_keys_are_thin(db, session):
    fill(db)
    db.query("delete from outbox.parked")
    assert claim_all(session, keys=12, oldest=(1, 20), rows=12).thin == 1
    session.execute("rollback; begin")
    assert claim_all(session, keys=11, oldest=(1, 20), rows=11).thin == 0  # ten of them
    session.execute("rollback; begin")
    assert claim_all(session, keys=30, oldest=(1, 20), rows=30).thin == 0  # there are no others
    session.execute("rollback; begin")
    assert claim_some(session, keys=12, oldest=(1, 20), rows=12).thin == 1
    session.execute("rollback; begin")
    assert claim_some(session, keys=10, oldest=(1, 20), rows=11).thin == 0  # all that are wanted
    session.execute("rollback; begin")
    assert claim_some(session, keys=30, oldest=(1, 20), rows=30).thin == 0


def test_short_end_does_not_make_the_other_thin(db, session):
    fill(db)
    db.query("delete from outbox.parked")
    assert claim_some(session, keys=12, newest=(12, 20), oldest=(1, 1), rows=6).thin == 0  # seven rows have seven keys
    session.execute("rollback; begin")
    assert claim_some(session, keys=16, newest=(12, 20), oldest=(1, 1), rows=6).thin == 1  # but less than half of those wanted


def test_keys_that_are_followed_do_not_hide_that_rows_are_thin(db, session):
    fill(db)
    db.query("delete from outbox.parked")
    assert claim_some(session, keys=20, oldest=(1, 20), rows=14, follow=[f"f{n}" for n in range(9)]).thin == 1  # ten keys, and nine
