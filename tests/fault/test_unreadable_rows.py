"""Rows that cannot be read: the queue's condition, or a column, fails for one of them. Only its key waits, at that row, and it
is named; all others are delivered."""

import json
import re

import pytest

from tests.conftest import migrate
from tests.support import servers
from tests.support.journal import read_lines
from tests.support.postgres import RELAY_ROLE
from tests.support.servers import run_command, wait_until

EVENTS, KEYS = 200, 20
BAD = 105  # of key 5, the sixth of ten
QUICK = "{ base: 20ms, max: 200ms, attempts: 100000 }"
ORDERINGS = ["per_key", "unordered", "lease"]
WHERE = "where: \"(payload->>'v')::int > 0\""


class Table:
    """public.rows, and relays that deliver it into a file."""

    def __init__(self, db, start, path, columns=""):
        self.db, self.start, self.path = db, start, path
        db.psql(f"create table public.rows (id bigserial primary key, key text, payload jsonb{columns});"
                "create index on public.rows (key, id);"
                "insert into public.rows (key, payload) select n % %s, '{\"v\": 1}' from generate_series(1, %s) as n"
                .replace("% %s", f"% {KEYS}").replace("%s", str(EVENTS)))
        db.let_relay_in("public.rows")
        db.query("grant update (id) on public.rows to outbox_relay")  # of an unordered queue, rows are locked

    def spoil(self, *ids, how="payload = '{\"v\": \"abc\"}'"):
        self.db.query(f"update public.rows set {how} where id = any (%s)", (list(ids),))

    def mend(self, *ids):
        self.spoil(*ids, how="payload = '{\"v\": 2}'")

    def relay(self, *settings, retry=QUICK, columns="", until_empty=False, dsn=None):
        lines = "\n".join(f"    {line}" for line in settings)
        return self.start(f"""\
database: "{dsn or self.db.dsn}"
sinks: {{ out: {{ type: file, path: "{self.path}", sync: no }} }}
queues:
  rows:
    table: public.rows
    columns: {{ id: id, key: key, payload: payload{columns} }}
    sink: out
    destination: rows
    retry: {retry}
{lines}
""", until_empty=until_empty)

    def left(self):
        return [n for (n,) in self.db.query("select id from public.rows order by id")]

    def sent(self):
        """(id, key) of each event that was delivered."""
        return [(line["id"], line["key"]) for line in read_lines(self.path)] if self.path.exists() else []

    def parked(self):
        return self.db.query("select key, event_id, attempts > 0, last_error from outbox.parked order by event_id")


@pytest.fixture
def table(db, relay, tmp_path):
    return Table(db, relay, tmp_path / "out.jsonl")


def behind(bad, ordering):
    """The rows that have to stay while `bad` cannot be read."""
    if ordering == "unordered":
        return sorted(bad)
    return sorted({n for one in bad for n in range(one, EVENTS + 1, KEYS)})


def wait_for_others(table, bad, ordering):
    wait_until(lambda: table.left() == behind(bad, ordering), 60, "all others to be delivered")


def check_order(table, ordering):
    sent = table.sent()
    assert sorted(sent) == sorted(set(sent)), "nothing is delivered twice"
    if ordering != "unordered":
        for key in {key for _, key in sent}:
            of_key = [n for n, k in sent if k == key]
            assert of_key == sorted(of_key)


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_a_row_of_which_the_condition_fails_makes_its_key_wait_and_nothing_else(table, ordering):
    table.spoil(BAD)
    one = table.relay(WHERE, f"ordering: {ordering}")
    wait_for_others(table, [BAD], ordering)
    wait_until(lambda: len(one.logged("event.unreadable")) >= 3, 60, "the row to be tried again")
    line = one.logged("event.unreadable")[0]
    assert re.search(f'queue=rows table=public.rows event={BAD} (key=5 )?.*attempt=1 wait_ms=.*cause="its row cannot be read from '
                     'public.rows: mend it, .*invalid input syntax for type integer', line), line
    wait_until(lambda: [row[1:3] for row in table.parked()] == [(BAD, True)], 60, "its key to wait")
    failed = len(one.logged("claim.failed"))
    assert failed <= 6
    # What comes later of other keys is not held up.
    table.db.query("insert into public.rows (key, payload) select 'later', '{\"v\": 1}' from generate_series(1, 50)")
    wait_for_others(table, [BAD], ordering)
    assert len(one.logged("claim.failed")) == failed
    table.mend(BAD)
    wait_until(lambda: table.left() == [] and table.parked() == [], 60, "the key to go on by itself")
    assert one.stop() == 0
    check_order(table, ordering)
    assert len(table.sent()) == EVENTS + 50


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("count", [10, 60])
def test_many_rows_of_which_the_condition_fails_make_only_their_keys_wait(table, ordering, count):
    """Of half of the keys six rows each, of two keys' events all of them; or ten rows of ten keys."""
    bad = [n for n in range(1, EVENTS + 1) if n % KEYS < 10 and (n > 80 if count == 60 else n > 180)]
    assert len(bad) == count
    table.spoil(*bad)
    one = table.relay(WHERE, f"ordering: {ordering}")
    wait_for_others(table, bad, ordering)
    first = sorted(bad) if ordering == "unordered" else sorted(n for n in bad if n - KEYS not in bad)
    wait_until(lambda: [row[1] for row in table.parked()] == first, 60, "their keys to wait")
    table.mend(*bad)
    wait_until(lambda: table.left() == [], 60, "the keys to go on by themselves")
    assert one.stop() == 0
    check_order(table, ordering)
    assert len(table.sent()) == EVENTS


def test_three_hundred_of_a_thousand_rows_are_found(db, relay, tmp_path):
    table = Table(db, relay, tmp_path / "out.jsonl")
    db.query("insert into public.rows (key, payload) select 'k' || n, '{\"v\": 1}' from generate_series(1, 800) as n")
    bad = [n for n in range(EVENTS + 1, EVENTS + 801) if n % 8 < 3]
    assert len(bad) == 300
    table.spoil(*bad)
    one = table.relay(WHERE, retry="{ base: 1s, max: 1s, attempts: 100000 }")
    wait_until(lambda: table.left() == bad, 60, "all others to be delivered")
    wait_until(lambda: len(table.parked()) == 300, 60, "their keys to wait")
    table.mend(*bad)
    wait_until(lambda: table.left() == [], 60, "the keys to go on by themselves")
    assert one.stop() == 0
    assert sorted(n for n, _ in table.sent()) == list(range(1, EVENTS + 801))


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_a_key_whose_row_cannot_be_read_is_closed_in_the_end(table, ordering):
    table.spoil(BAD)
    one = table.relay(WHERE, f"ordering: {ordering}", retry="{ base: 1ms, max: 10ms, attempts: 3 }", until_empty=True)
    assert one.wait(60) == 0  # a closed key does not count
    assert table.left() == behind([BAD], ordering)
    assert one.logged(f"event.unreadable .*event={BAD} .*attempt=3 wait=closed")
    shown = run_command("status", "--json", "-c", one.config_path)
    status = json.loads(shown.stdout)["queues"][0]
    assert (status["closed"], status["waiting"]) == (1, len(table.left()))
    assert "`where` fails for some row" in shown.stderr and "invalid input syntax" in shown.stderr
    listed = run_command("dead", "list", "-c", one.config_path)
    assert "its row cannot be read from public.rows" in listed.stdout

    # Another relay finds it as it is; opened, its key is tried again; mended, it goes on.
    again = table.relay(WHERE, f"ordering: {ordering}", retry="{ base: 1ms, max: 10ms, attempts: 3 }", until_empty=True)
    assert again.wait(60) == 0
    table.mend(BAD)
    table.db.psql("grant insert on public.rows to outbox_relay")
    assert run_command("dead", "retry", "--all", "-c", one.config_path).returncode == 0
    last = table.relay(WHERE, f"ordering: {ordering}", until_empty=True)
    assert last.wait(60) == 0
    assert table.left() == []
    check_order(table, ordering)


def test_where_only_rows_are_left_that_cannot_be_read_a_new_relay_knows_them(table):
    bad = [101, 102, 103]
    table.spoil(*bad)
    one = table.relay(WHERE)
    wait_for_others(table, bad, "per_key")
    wait_until(lambda: len(one.logged("event.unreadable")) >= 3, 60, "the keys to wait")
    assert one.stop() == 0
    other = table.relay(WHERE)
    wait_until(lambda: {n for n in bad if other.logged(f"event.unreadable .*event={n} ")} == set(bad), 60, "the rows to be named")
    table.db.query("delete from public.rows where id = 102")
    table.mend(101, 103)
    wait_until(lambda: table.left() == [] and table.parked() == [], 60, "the keys to go on")
    assert other.stop() == 0
    check_order(table, "per_key")


@pytest.mark.parametrize("how", ["condition", "column"])
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_a_row_that_is_alone_in_its_table_is_named(db, relay, tmp_path, ordering, how):
    """No other row says that the statement is right: that no row at all makes it fail does."""
    table = Table(db, relay, tmp_path / "out.jsonl", ", at timestamp default now()")
    db.psql(f"alter database {db.name} set timezone = 'America/New_York'; delete from public.rows where id > 1;")
    table.spoil(1) if how == "condition" else table.spoil(1, how="at = '294276-12-31 23:59:59.999999'")
    one = table.relay(f"ordering: {ordering}", *([WHERE] if how == "condition" else []), columns=", created_at: at" if how == "column" else "")
    wait_until(lambda: one.logged("event.unreadable"), what="the row to be named")
    wait_until(lambda: [row[1] for row in table.parked()] == [1], what="its key to wait")
    table.spoil(1, how="payload = '{\"v\": 2}', at = now()")
    wait_until(lambda: table.left() == [], what="the row to be delivered")


def test_two_relays_find_the_same_row(table):
    table.spoil(BAD)
    relays = [table.relay(WHERE, "keys_per_claim: 4") for _ in range(2)]
    wait_for_others(table, [BAD], "per_key")
    table.db.query("insert into public.rows (key, payload) select n % 50, '{\"v\": 1}' from generate_series(1, 500) as n"
                   " where n % 50 <> 5")
    wait_for_others(table, [BAD], "per_key")
    table.mend(BAD)
    wait_until(lambda: table.left() == [], 60, "the key to go on by itself")
    assert [one.stop() for one in relays] == [0, 0]
    check_order(table, "other")


@pytest.mark.parametrize("ordering", ["per_key", "lease"])
def test_the_row_behind_those_that_a_claim_has_read_blames_none_of_them(table, ordering):
    """A settlement looks for the next event of its keys: with leases always, else of keys that had waited."""
    bad = EVENTS + 100 + 1
    table.db.query("insert into public.rows (key, payload) select 'hot', '{\"v\": 1}' from generate_series(1, 5000)")
    table.db.query("delete from public.rows where id <= %s", (EVENTS,))
    table.db.query("analyze public.rows")
    table.db.query("insert into outbox.parked (queue, key, event_id, next_at) values ('rows', 'hot', %s, now())", (EVENTS + 1,))
    table.spoil(bad)
    one = table.relay(WHERE, f"ordering: {ordering}", "keys_per_claim: 2", "max_events_per_key: 100", "connections: 1")
    wait_until(lambda: table.left()[:1] == [bad] and one.logged("event.unreadable"), 60, "the events before it to be delivered")
    table.mend(bad)
    wait_until(lambda: table.left() == [], 60, "the key to go on by itself")
    assert one.stop() == 0
    assert not one.logged("event.stuck")
    check_order(table, ordering)


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_behind_a_pooler_a_row_of_which_the_condition_fails_makes_its_key_wait_and_nothing_else(table, pg, ordering):
    table.spoil(BAD)
    with servers.PgBouncer(pg, user=RELAY_ROLE, settings={"default_pool_size": 20}) as bouncer:
        locks = ["locks: advisory"] if ordering == "unordered" else []
        one = table.relay(WHERE, f"ordering: {ordering}", *locks, dsn=bouncer.dsn(table.db.name))
        wait_for_others(table, [BAD], ordering)
        wait_until(lambda: len(one.logged(f"event.unreadable .*event={BAD} ")) >= 2, 60, "the row to be tried again")
        table.mend(BAD)
        wait_until(lambda: table.left() == [] and table.parked() == [], 60, "the key to go on by itself")
        assert one.stop() == 0
        check_order(table, ordering)


# ---- what is read ----

@pytest.mark.parametrize("ordering", ORDERINGS)
def test_a_row_of_which_a_column_cannot_be_read_makes_its_key_wait_and_nothing_else(db, relay, tmp_path, ordering):
    """The last moment of a timestamp without a zone is beyond the last one with, west of Greenwich."""
    table = Table(db, relay, tmp_path / "out.jsonl", ", at timestamp not null default now()")
    db.psql(f"alter database {db.name} set timezone = 'America/New_York'")
    table.spoil(BAD, how="at = '294276-12-31 23:59:59.999999'")
    one = table.relay(f"ordering: {ordering}", columns=", created_at: at")
    wait_for_others(table, [BAD], ordering)
    wait_until(lambda: one.logged(f"event.unreadable .*table=public.rows event={BAD} .*timestamp out of range"), 60, "it to be named")
    assert len(one.logged("claim.failed")) <= 6
    table.spoil(BAD, how="at = now()")
    wait_until(lambda: table.left() == [] and table.parked() == [], 60, "the key to go on by itself")
    assert one.stop() == 0
    check_order(table, ordering)


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_a_row_for_which_the_condition_raises_what_a_server_lacks_makes_its_key_wait_and_nothing_else(table, ordering):
    """`cannot convert NaN to integer` is feature_not_supported."""
    table.spoil(BAD, how="payload = '{\"v\": \"NaN\"}'")
    one = table.relay("where: \"(payload->>'v')::numeric::int > 0\"", f"ordering: {ordering}")
    wait_for_others(table, [BAD], ordering)
    wait_until(lambda: one.logged(f"event.unreadable .*event={BAD} .*0A000"), 60, "the row to be named")
    table.mend(BAD)
    wait_until(lambda: table.left() == [], 60, "the key to go on by itself")
    assert one.stop() == 0
    check_order(table, ordering)


def test_bytes_that_are_no_character_make_their_key_wait_and_nothing_else(relay, tmp_path):
    with servers.Postgres() as server:
        server.create_database()  # it makes the roles
        server.query("create database latin owner shop_owner encoding 'WIN1252' lc_collate 'C' lc_ctype 'C' template template0")
        db = servers.Database(server, "latin")
        migrate(db)
        table = Table(db, relay, tmp_path / "out.jsonl", ", body text not null default 'x'")
        db.psql(f"update public.rows set body = convert_from('\\x81', 'WIN1252') where id = {BAD}")
        one = table.relay(columns=", type: body")
        wait_for_others(table, [BAD], "per_key")
        wait_until(lambda: one.logged(f"event.unreadable .*event={BAD} key=5 .*has no equivalent in encoding"), 60, "it to be named")
        table.spoil(BAD, how="body = 'y'")
        wait_until(lambda: table.left() == [], 60, "the key to go on by itself")
        assert one.stop() == 0
        check_order(table, "per_key")


# ---- what is nobody's fault ----

SYSTEMATIC = {
    "function": ("create function public.ok(p jsonb) returns boolean stable language plpgsql as $$ begin return public.helper(p); end $$",
                 "where: public.ok(payload)", "helper"),
    "column": ("alter table public.rows add column ok boolean not null default true", "where: ok", "column"),
    "raises": ("create function public.ok(p jsonb) returns boolean stable language plpgsql as $$ begin raise 'never'; end $$",
               "where: public.ok(payload)", "never"),
    "value": ("", "where: \"(payload->>'v') || 'x' = '' or ((payload->>'v') || 'x')::int > 0\"", "invalid input syntax"),
}


@pytest.mark.parametrize("what", SYSTEMATIC)
def test_a_condition_that_fails_for_every_row_blames_none(table, what):
    sql, where, says = SYSTEMATIC[what]
    if sql:
        table.db.psql(sql)
    one = table.relay(where)
    if what == "column":
        wait_until(lambda: table.left() == [], 60, "all to be delivered")
        table.db.psql("alter table public.rows drop column ok;"
                      "insert into public.rows (key, payload) select n, '{}' from generate_series(1, 20) as n")
    wait_until(lambda: len(one.logged(f"claim.failed .*{says}")) >= 5, 60, "claims to fail")
    assert not one.logged("event.unreadable") and table.parked() == []
    assert one.stop() == 0
