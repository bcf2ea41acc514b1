"""What a relay believes about ids that it has not seen yet, and about those below which there is nothing to read."""

import json
import re
from contextlib import closing

import pytest

from tests.support.servers import wait_until
from tests.support.sql_files import rendered
from tests.support.statement_log import StatementLog

TABLES = ["create table events (id bigserial primary key, order_id bigint)",
          "create table events (id bigint primary key, order_id bigint); create sequence s start 500 owned by events.id; "
          "alter table events alter id set default nextval('s')"]


def looked_for_the_floor(statements):
    """The relay has found the table empty up to the id that it believes was drawn last, and gone on since. A claim has, or a probe."""
    _, asked, since = statements.text().partition("as drawn")
    return asked and "as drawn" in since


@pytest.mark.parametrize("table", TABLES, ids=["from 1", "from 500"])
def test_first_event_of_a_table_that_was_new_when_the_relay_started_is_delivered(db, relay, tmp_path, table):
    db.psql(f"{table}; create index on events (order_id, id)")
    db.let_relay_in("public.events")
    statements = StatementLog(db)
    path = tmp_path / "events.jsonl"
    relay(f'database: "{db.dsn}"\nsinks:\n  log: {{ type: file, path: "{path}" }}\n'
          "queues:\n  orders: { table: public.events, columns: { key: order_id }, sink: log }\n")
    wait_until(lambda: looked_for_the_floor(statements), what="the relay to look for the smallest id")
    db.query("insert into events (order_id) values (1)")
    wait_until(lambda: path.exists() and path.read_text().count("\n") == 1, what="the first event to arrive")


# ---- what waits keeps no read among what is dead ----

CONFIG = """
database: "{dsn}"
sinks: {{ log: {{ type: file, path: "{path}" }} }}
queues:
  orders: {{ sink: log {more} }}
"""
PUT = "insert into outbox.events (aggregateid, type) values (%s, 't') returning id"
READ = re.compile(r"as attempts, (?:null::bigint|p\.event_id) as head.*?parameters: \$1 = '\w+', \$2 = '(-?\d+)', .*?, \$5 = '(\{.*?\})'", re.DOTALL)
KEYED = "insert into outbox.parked (queue, key, event_id, attempts, next_at) values ('orders', 'a', %s, 1, {})"
KEYLESS = "insert into outbox.parked (queue, key, keyless, event_id, attempts, next_at) values ('orders', '', true, %s, 1, {})"
CLOSED, LATER = "'infinity'", "now() + interval '1 day'"


class Floor:
    """Of the reads of relays that connect from now on; 10 events that wait lie at the lower end of the table."""

    def __init__(self, db, key):
        self.db, self.log = db, StatementLog(db)
        self.waiting = [db.value(PUT, [key]) for _ in range(10)]

    def value(self):
        read = READ.findall(self.log.text())
        return int(read[-1][0]) if read else 0

    def left_behind(self):
        return READ.findall(self.log.text())[-1][1]

    def wait_until_passed(self):
        """Somebody looks again and again."""
        wait_until(lambda: self.db.query(PUT, ["b"]) and self.value() > self.waiting[-1], what="the floor to pass what waits")

    def wait_for_looks(self, count):
        """So many times it was asked who moves entries, and answered."""
        wait_until(lambda: self.db.query(PUT, ["b"]) and self.looks() > count, what="another look")

    def looks(self):
        return self.log.text().count("as movers")


def delivered(path):
    return [json.loads(line)["id"] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("until", [CLOSED, LATER], ids=["closed", "a retry"])
@pytest.mark.parametrize("key, entry, entries", [("a", KEYED, 1), (None, KEYLESS, 10)], ids=["key", "events without one"])
def test_what_waits_holds_no_floor_down_and_is_delivered_in_order(db, relay, tmp_path, key, entry, entries, until):
    floor, path = Floor(db, key), tmp_path / "events.jsonl"
    for event in floor.waiting[:entries]:
        db.query(entry.format(until), [event])
    relay(CONFIG.format(dsn=db.dsn, path=path, more=""))
    floor.wait_until_passed()
    last = db.value(PUT, [key])
    wait_until(lambda: key or last in delivered(path), what="what does not wait to be delivered")
    db.query("update outbox.parked set next_at = now(), attempts = 0")
    wait_until(lambda: db.value("select count(*) from outbox.events") == 0, what="everything to be delivered")
    got = [event for event in delivered(path) if event in {*floor.waiting, last}]
    assert got == [*floor.waiting, last] if key else sorted(got) == [*floor.waiting, last]


def test_what_waits_below_the_floor_keeps_a_relay_from_being_done(db, relay, tmp_path):
    """Also when its head is gone."""
    floor, path = Floor(db, "a"), tmp_path / "events.jsonl"
    db.query(KEYED.format(LATER), [floor.waiting[0]])
    db.query("delete from outbox.events where id = %s", [floor.waiting[0]])
    one = relay(CONFIG.format(dsn=db.dsn, path=path, more=""), until_empty=True)
    floor.wait_until_passed()
    floor.log.forget()
    wait_until(lambda: "as waiting" in floor.log.text(), what="it to ask whether anything is left")
    db.query("update outbox.parked set next_at = now()")
    assert one.wait() == 0 and delivered(path)[-9:] == floor.waiting[1:]


def hold_lock(session):
    session.cursor().execute("select pg_advisory_xact_lock(outbox.lock_class_of('outbox.events'), outbox.lock_hash('text', 'a', 0))")


def write_entries(session):
    session.cursor().execute("update outbox.parked set updated_at = now() where key = 'somebody else'")


def lease(session):
    """It is not known what has it when it ends."""
    session.cursor().execute("update outbox.parked set token = gen_random_uuid(), worker = 'w', taken_id = event_id, taken_at = now(), lease = '1 day'")
    session.commit()


@pytest.mark.parametrize("hold", [hold_lock, write_entries, lease])
def test_what_somebody_may_be_about_to_move_is_passed_only_as_left_behind(db, relay, tmp_path, hold):
    floor = Floor(db, "a")
    db.query(KEYED.format(LATER), [floor.waiting[0]])
    with closing(db.connect(autocommit=False)) as session:
        hold(session)
        relay(CONFIG.format(dsn=db.dsn, path=tmp_path / "events.jsonl", more=""))
        floor.wait_until_passed()
        floor.wait_for_looks(3)
        assert floor.left_behind() == "{a}"
    db.query("update outbox.parked set token = null, worker = null, taken_id = null, taken_at = null, lease = null")
    wait_until(lambda: db.query(PUT, ["b"]) and floor.left_behind() == "{}", what="its entry to be enough")
    assert floor.value() > floor.waiting[-1]


def test_writers_who_come_and_go_keep_nothing_down(db, relay, tmp_path):
    """There is one at each look."""
    floor = Floor(db, "a")
    db.query(KEYED.format(LATER), [floor.waiting[0]])
    with closing(db.connect(autocommit=False)) as one, closing(db.connect(autocommit=False)) as other:
        sessions = [one, other]
        write_entries(one)
        relay(CONFIG.format(dsn=db.dsn, path=tmp_path / "events.jsonl", more=""))
        for looks in range(20):
            db.query(PUT, ["b"])
            wait_until(lambda: floor.value() > floor.waiting[-1] or floor.looks() > looks, what="another look")
            write_entries(sessions[(looks + 1) % 2])
            sessions[looks % 2].rollback()
        assert floor.value() > floor.waiting[-1]


def test_an_isolation_level_that_sees_nothing_new_passes_nothing(db):
    """A probe of another level would not see who has moved an entry before it looked at the locks."""
    text = rendered("horizon", "horizon_movers.sql", lock_class="7", parked_class="'outbox.parked'::regclass").replace("$1", "'{}'")
    for level, known in [("read committed", "{}"), ("repeatable read", ""), ("serializable", "")]:
        with closing(db.connect(autocommit=False)) as session, session.cursor() as cursor:
            cursor.execute(f"set transaction isolation level {level}")
            cursor.execute(text)
            assert cursor.fetchone() == ("{}", known)


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_the_sessions_of_a_relay_are_read_committed(db, relay, tmp_path, isolation):
    db.query(f"alter database {db.name} set default_transaction_isolation = '{isolation}'")
    floor = Floor(db, "a")
    db.query(KEYED.format(LATER), [floor.waiting[0]])
    relay(CONFIG.format(dsn=db.dsn, path=tmp_path / "events.jsonl", more=""))
    floor.wait_until_passed()


@pytest.mark.parametrize("type", ["smallint", "integer", "bigint"])
def test_ids_of_every_type_hold_the_floor_down(db, relay, tmp_path, type):
    """An event that somebody else has at the moment is not passed, and comes before what is put behind it."""
    db.psql(f"create table public.events (id {type} generated always as identity primary key, k text); create index on public.events (k, id)")
    db.let_relay_in("public.events")
    put, path = "insert into public.events (k) values (%s) returning id", tmp_path / "events.jsonl"
    with closing(db.connect(autocommit=False)) as session:
        session.cursor().execute("select pg_advisory_xact_lock(outbox.lock_class_of('public.events'), outbox.lock_hash('text', 'b', 0))")
        first = db.value(put, ["b"])
        log = StatementLog(db)
        relay(CONFIG.format(dsn=db.dsn, path=path, more=", table: public.events, columns: { key: k }, keys_per_claim: 1"))
        log.wait_for_probes(5)
        more = [db.value(put, [key]) for key in "abcab"]
        wait_until(lambda: len(delivered(path)) == 3, what="those of other keys")
        assert max(int(floor) for floor, left in READ.findall(log.text()) if left == "{}") <= first
    wait_until(lambda: db.value("select count(*) from public.events") == 0, what="everything to be delivered")
    assert [event for event in delivered(path) if event in (first, more[1], more[4])] == [first, more[1], more[4]]


def test_a_failure_does_not_pass_what_has_shown_late(db):
    """A settlement by a connection that has not the key's lock: the entry stays at or below what nobody has delivered."""
    first, late, failed = (db.value(PUT, ["a"]) for _ in range(3))
    db.query(KEYED.format(LATER), [first])
    db.query("delete from outbox.events where id = %s", [first])
    park(db, failed)
    assert db.query("select event_id, next_at <= clock_timestamp() from outbox.parked") == [(first, True)]
    db.query("delete from outbox.events where id = %s", [late])
    park(db, failed)
    assert db.query("select event_id, next_at > clock_timestamp() from outbox.parked") == [(failed, True)]


def park(db, event):
    text = rendered("settle", "settle_park.sql", table="outbox.events", where="true", state="outbox", id="e.id", key="e.aggregateid",
                    behind_entry="e.aggregateid = p.key and e.id >= p.event_id")
    arguments = ["orders", [event], ["a"], [1], [60_000_000], ["it failed"], [-2**63], []]
    types = ["text", "bigint[]", "text[]", "bigint[]", "bigint[]", "text[]", "bigint[]", "text[]"]
    with closing(db.connect()) as session, session.cursor() as cursor:
        cursor.execute(f"prepare park ({', '.join(types)}) as {text}")
        cursor.execute("execute park (%s)" % ", ".join(["%s"] * len(arguments)), arguments)
