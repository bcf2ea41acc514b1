"""check-config --database: each thing that can be wrong with a queue's table is one line that says how to mend it."""

import re
from pathlib import Path

import pytest

from tests.conftest import migrate
from tests.support import servers
from tests.support.postgres import RELAY_ROLE
from tests.support.servers import run_command

ARTICLE = ("create table public.events (id bigserial primary key, order_id bigint, status text not null, "
           "created_at timestamptz not null default now()); "
           "create index on public.events (created_at); create index on public.events (order_id)")
GOOD = "create table public.events (id bigserial primary key, order_id bigint, status text); " \
       "create index on public.events (order_id, id)"
COLUMNS = "id: id, key: order_id, type: status"
# The relay of these tests, to every table there is.
LET_IN = """
select outbox.grant_relay(oid::regclass) from pg_class
 where relkind in ('r', 'p', 'v', 'f') and relnamespace not in (select oid from pg_namespace where nspname ~ '^(outbox|information_schema|pg_.*)$')
"""


@pytest.fixture(scope="module")
def durable():
    """A server without the shortcuts of the other tests, so that nothing is said about them."""
    with servers.Postgres(durable=True) as server:
        database = server.create_database(name="outbox_template")
        migrate(database)
        yield server


@pytest.fixture
def check(durable, tmp_path):
    """check(setup, columns=..., **queue settings) -> (exit code, findings without "orders: ")."""
    database = durable.create_database("outbox_template")

    def run(setup=None, columns=COLUMNS, table="public.events", user=RELAY_ROLE, **settings):
        if setup:
            database.query(setup)
            database.query(LET_IN)
        path = tmp_path / "pgcourier.yaml"
        extra = "".join(f", {name}: {value}" for name, value in settings.items())
        path.write_text(f'database: "{durable.dsn(database.name, user=user)}"\nsinks:\n  none: {{ type: discard }}\n'
                        f'queues:\n  orders: {{ table: \'{table}\', columns: {{ {columns} }}, sink: none{extra} }}\n')
        done = run_command("check-config", "-c", str(path), "--database")
        assert done.stderr == "" or done.returncode in (64, 69, 75, 77), done.stderr
        lines = [line.removeprefix("orders: ").replace(f"{path}:", "FILE:")
                 for line in done.stdout.splitlines() if line.startswith("orders: ")]
        return done.returncode, lines

    run.database = database
    yield run
    database.drop()


def test_the_articles_table_is_served_as_it_is(check):
    code, findings = check(ARTICLE, columns="id: id, key: order_id, type: status, created_at: created_at")
    assert code == 0
    assert findings == [
        'warning: public.events has an index on "order_id" but none on ("order_id", "id"): a key with many events is slow to '
        'claim  fix: create index concurrently on "public"."events" ("order_id", "id");']


def test_nothing_is_said_about_a_good_table(check):
    assert check(GOOD) == (0, [])
    assert check(None, table="outbox.events", after="archive",
                 columns="id: id, key: aggregateid, type: type, payload: payload, headers: headers, event_id: event_id, "
                         "traceparent: traceparent, created_at: created_at") == (0, [])


FINDINGS = [
    # what is done to the good table, the level, a part of the text, the fix
    ("drop index public.events_order_id_id_idx", "warning", 'has no index on "order_id"',
     'create index concurrently on "public"."events" ("order_id", "id");'),
    ("drop index public.events_order_id_id_idx; create index on public.events (order_id, id desc)", "warning",
     'has an index on "order_id" but none on ("order_id", "id")', 'create index concurrently on "public"."events" ("order_id", "id");'),
    ("alter table public.events alter order_id type text; drop index public.events_order_id_id_idx", "warning",
     "would do, and refuse keys of more than 2600 bytes, which cannot wait", 'create index concurrently on "public"."events" ("order_id", "id");'),
    ("alter table public.events drop constraint events_pkey", "error", '"id" of public.events is not unique',
     'create unique index concurrently on "public"."events" ("id");'),
    ("alter table public.events drop constraint events_pkey; create unique index on public.events (id);"
     "alter table public.events alter column id drop not null", "error", '"id" of public.events may be null',
     'alter table "public"."events" alter column "id" set not null;'),
    ("alter sequence public.events_id_seq cache 32", "error", "has cache 32",
     'alter sequence "public"."events_id_seq" cache 1;'),
    ("alter sequence public.events_id_seq cycle", "error", "starts again at its end",
     'alter sequence "public"."events_id_seq" no cycle;'),
    ("alter sequence public.events_id_seq increment 50", "warning", "counts in steps of 50",
     'alter sequence "public"."events_id_seq" increment 1;'),
    ("alter sequence public.events_id_seq increment -1 minvalue -1000 maxvalue 1000", "error", "counts down", ""),
    ("create rule keep as on delete to public.events do instead nothing", "error", "rule keep on public.events stands in the way",
     "drop rule keep on public.events;"),
    ("create function public.keep() returns trigger language plpgsql set search_path = public as 'begin return null; end'; create trigger keep before "
     "delete on public.events for each row execute function public.keep()", "warning", "trigger keep on public.events fires", ""),
    ("create table public.child (event_id bigint constraint refers references public.events)", "warning",
     "foreign key refers of public.child refers to it", ""),
    ("create table public.child () inherits (public.events)", "warning", "public.events has children by inheritance", ""),
    ("create collation public.loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false);"
     "alter table public.events alter order_id type text collate public.loose", "error", "has a nondeterministic collation",
     'alter table "public"."events" alter column "order_id" type text collate "C";'),
    ("alter table public.events set unlogged", "error", "is unlogged", 'alter table "public"."events" set logged;'),
]


@pytest.mark.parametrize("change, level, text, fix", FINDINGS, ids=[row[2] for row in FINDINGS])
def test_each_fault_is_one_line_with_its_remedy(check, change, level, text, fix):
    code, findings = check(GOOD + ";" + change)
    assert code == (78 if level == "error" else 0)
    (line,) = findings
    assert line.startswith(f"{level}: ") and text in line
    assert (line.split("  fix: ") + [""])[1] == fix


@pytest.mark.parametrize("change, level, text, fix", [row for row in FINDINGS if row[3]],
                         ids=[row[2] for row in FINDINGS if row[3]])
def test_each_remedy_mends(check, change, level, text, fix):
    check(GOOD + ";" + change)
    for statement in fix.splitlines():
        check.database.query(statement)
    assert check(None) == (0, [])


REFUSED = [
    ("columns", {"columns": "id: id, key: oder_id"},
     'error: FILE:5:3: table public.events has no column "oder_id" (columns.key); did you mean "order_id"?'),
    ("destination", {"destination": '"o.{statu}"'},
     'error: FILE:5:3: table public.events has no column "statu" (destination); did you mean "status"?'),
    ("no column's name", {"destination": f'"o.{{{"s" * 64}}}"'}, 'after a "{" comes the name of a column and a "}"'),
    ("table", {"table": "public.evnts"}, "error: FILE:5:3: there is no table public.evnts in database "),
    ("view", {"table": "public.seen"}, "error: FILE:5:3: public.seen is a view or a foreign table; events are deleted by id, "
                                       "so give the table behind it"),
    ("id", {"columns": "id: status"}, 'error: FILE:5:3: column "status" of public.events is of type text and cannot serve as '
                                      "id; give one of: bigint, integer, smallint"),
    ("key", {"columns": "id: id, key: amount"},
     'error: FILE:5:3: column "amount" of public.events is of type numeric and cannot serve as key; give one of: bigint, '
     "integer, smallint, text, character varying, uuid"),
    ("payload", {"columns": "id: id, payload: amount"}, "cannot serve as payload; give one of: json, jsonb, text, character "
                                                        "varying, bytea"),
    ("created_at", {"columns": "id: id, created_at: status"}, "cannot serve as created_at; give one of: timestamp with time "
                                                              "zone, timestamp without time zone"),
]


@pytest.mark.parametrize("settings, text", [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_table_that_cannot_serve_is_refused(check, settings, text):
    code, findings = check(GOOD + "; alter table public.events add amount numeric; create view public.seen as "
                                  "select * from public.events", **settings)
    assert code == 78 and len(findings) == 1 and text in findings[0]


@pytest.mark.parametrize("key", ["bigint", "integer", "smallint", "text", "varchar(20)", "uuid"])
@pytest.mark.parametrize("payload", ["json", "jsonb", "text", "varchar", "bytea"])
def test_every_type_of_key_and_payload_serves(check, key, payload):
    assert check(f"create table public.events (id int generated always as identity primary key, order_id {key} not null,"
                 f" body {payload}); create index on public.events (order_id, id)",
                 columns="id: id, key: order_id, payload: body") == (0, [])


def test_names_are_taken_exactly_or_as_sql_folds_them(check):
    check('create schema "Shop"; create table "Shop"."OutBox" ("Id" bigserial primary key, "Key" text, key text);'
          'create index on "Shop"."OutBox" ("Key", "Id")')
    assert check(None, table="Shop.OutBox", columns="id: Id, key: Key") == (0, [])
    code, findings = check(None, table="Shop.OutBox", columns="id: Id, key: KEY")
    assert code == 0 and '("key", "Id")' in findings[0]
    assert check(GOOD, table="EVENTS", columns="id: ID, key: Order_Id") == (0, [])


def test_missing_privileges_are_named_object_by_object(check, durable):
    durable.query("drop role if exists courier; create role courier login")
    code, findings = check(GOOD, user="courier", after="archive")
    assert code == 77
    assert check(None, user="courier", after="archive", where='"nosuch = 1"')[0] == 78, "what is worse than a missing right"
    assert findings == [
        "error: courier has no USAGE on schema outbox  fix: grant outbox_relay to courier;",
        "error: courier has no DELETE, SELECT on public.events  fix: grant delete, select on public.events to courier;",
        "error: courier has no DELETE, INSERT, SELECT, UPDATE on outbox.parked  fix: grant outbox_relay to courier;",
        "error: courier has no INSERT on outbox.dead  fix: grant outbox_relay to courier;",
        "error: courier has no INSERT on outbox.archive  fix: grant outbox_relay to courier;",
        "error: courier has no SELECT on outbox.queue  fix: grant outbox_relay to courier;",
        "error: courier has no SELECT on outbox.paused  fix: grant outbox_relay to courier;",
        "error: courier has no SELECT on outbox.schedule  fix: grant outbox_relay to courier;",
        "warning: courier has no EXECUTE on function outbox.archive_prepare(integer)  fix: grant outbox_relay to courier;",
        "warning: courier has no EXECUTE on function outbox.note_served(text, regclass, integer, text, jsonb)  fix: grant outbox_relay to courier;",
        "warning: courier has no EXECUTE on function outbox.note_serving(text, oid, integer, text, boolean)  fix: grant outbox_relay to courier;",
        "warning: courier has no EXECUTE on function outbox.archive_expire(text, interval, boolean)  fix: grant outbox_relay to courier;",
        'warning: courier may not read sequence "public"."events_id_seq": how far the ids go is then asked of the table, which '
        'sees late events later  fix: grant select on sequence "public"."events_id_seq" to "courier";']
    for line in findings:
        check.database.query(line.split("  fix: ")[1])
    assert check(None, user="courier", after="archive") == (0, [])


def test_row_level_security_that_may_hide_rows_is_an_error(check, durable):
    durable.query("drop role if exists blinkered; create role blinkered login")
    check.database.query("grant outbox_relay to blinkered")
    code, findings = check(GOOD + "; select outbox.grant_relay('public.events', 'blinkered'); alter table public.events enable row "
                                  "level security", user="blinkered")
    assert code == 78 and "row-level security on public.events may hide rows from blinkered" in findings[0]
    check.database.query(findings[0].split("  fix: ")[1])
    assert check(None, user="blinkered") == (0, [])
    check.database.query("create policy half on public.events as restrictive using (id > 5)")
    assert check(None, user="blinkered")[0] == 78


def test_a_missing_schema_says_what_to_run(check):
    check(GOOD)
    check.database.query("drop schema outbox cascade")
    code, (line,) = check(None)
    assert code == 78 and line.endswith("run pgcourier migrate")


@pytest.mark.parametrize("older, lacking", [
    ("alter table outbox.parked drop column after_id cascade", "outbox.parked has no column after_id"),
    ("alter table outbox.parked drop column lease cascade, drop column backend_pid cascade", "outbox.parked has no column lease"),
    ("drop table outbox.schedule cascade", "outbox.schedule is not there"),
    ("alter table outbox.queue drop column priority_column cascade", "outbox.queue has no column priority_column"),
])
def test_the_schema_of_an_earlier_version_says_what_to_run(check, older, lacking):
    check(GOOD)
    check.database.query(older)
    code, (line,) = check(None)
    name = check.database.name
    assert code == 78 and line == f"error: the outbox schema of database {name} is that of an earlier pgcourier ({lacking}): run pgcourier migrate"


def test_every_column_of_what_waits_and_what_is_dead_is_looked_for(check):
    text = Path("sql/table/table_server.sql").read_text()
    for table in ("parked", "dead"):
        (names,) = re.findall(rf"\('{table}', '{{([^}}]*)}}'", re.sub(r"'\s+'", "", text))
        assert names.split(",") == [row[0] for row in check.database.query(
            "select attname::text from pg_attribute where attrelid = %s::regclass and attnum > 0 order by attnum", (f"outbox.{table}",))]


def test_the_lock_table_is_budgeted(check):
    code, (line,) = check(GOOD, keys_per_claim=600, connections=3)
    assert code == 0 and line.startswith("warning: 600 keys a claim on 3 connections may come to hold 3600 locks while "
                                         "a slow delivery keeps a transaction open, and the server has about 6400 for everybody")
    assert line.endswith("fix: alter system set max_locks_per_transaction = 73;")


def test_a_partition_with_a_sequence_of_its_own_is_an_error(check):
    check("create table public.events (id bigint not null default 0, order_id bigint, status text, day int, primary key (id, day))"
          " partition by list (day); create sequence public.all_ids; create sequence public.one_id;"
          "alter table public.events alter id set default nextval('public.all_ids');"
          "create table public.one partition of public.events for values in (1);"
          "create table public.two partition of public.events for values in (2);"
          "create index on public.events (order_id, id)")
    code, (line,) = check(None)
    assert code == 0 and line.startswith("warning") and "unique only within a partition" in line
    code, findings = check("alter table public.one alter id set default nextval('public.one_id')")
    assert code == 78 and any("partition public.one of public.events draws" in line for line in findings)


def test_a_where_that_does_not_fit_is_an_error(check):
    assert check(GOOD, where='"status <> \'x\' and id > 0"') == (0, [])
    code, (line,) = check(None, where='"nosuch = 1"')
    assert code == 78 and 'the condition cannot be used on public.events: where: column "nosuch" does not exist' in line


def test_servers_that_forget_are_a_warning(tmp_path):
    with servers.Postgres() as server:
        database = server.create_database()
        migrate(database)
        database.query(GOOD)
        database.let_relay_in("public.events")
        path = tmp_path / "pgcourier.yaml"
        path.write_text(f'database: "{database.dsn}"\nsinks:\n  none: {{ type: discard }}\nqueues:\n'
                        f"  orders: {{ table: public.events, columns: {{ {COLUMNS} }}, sink: none }}\n")
        done = run_command("check-config", "-c", str(path), "--database")
    assert done.returncode == 0
    assert "orders: warning: synchronous_commit is off" in done.stdout and "orders: warning: fsync is off" in done.stdout


@pytest.mark.parametrize("other, text", [
    ("sink: none", 'queue "orders" already reads public.events; give each of the two a "where" that leaves the other\'s rows alone'),
    ("sink: none, where: b, lock_class: 7", 'queue "orders" reads public.events with another lock class; give both the same'),
    ("sink: none, where: b", None)])
def test_two_queues_are_told_that_they_read_one_table_under_two_names(durable, check, tmp_path, other, text):
    check.database.query("create table public.events (id bigserial primary key, k text, a bool, b bool);"
                         "create index on public.events (k, id)")
    check.database.query(LET_IN)
    path = tmp_path / "pgcourier.yaml"
    path.write_text(f'database: "{durable.dsn(check.database.name)}"\nsinks:\n  none: {{ type: discard }}\nqueues:\n'
                    "  orders: { table: events, columns: { key: k }, sink: none, where: a }\n"
                    f"  others: {{ table: Public.EVENTS, columns: {{ key: k }}, {other} }}\n")
    checked = run_command("check-config", "-c", str(path), "--database")
    done = run_command("run", "-c", str(path), "--until-empty")
    if text:
        assert (checked.returncode, done.returncode) == (78, 78)
        assert f"others: error: {path}:6:3: {text}" in checked.stdout
        assert f"pgcourier: {path}:6:3: {text}" in done.stderr
    else:
        assert (checked.returncode, done.returncode) == (0, 0)


def test_a_partition_is_also_read_through_its_table(durable, check, tmp_path):
    check.database.query("create table public.events (id bigint, k text, day int, primary key (id, day)) partition by list (day);"
                         "create table public.one partition of public.events for values in (1);"
                         "create table public.two partition of public.events for values in (2);"
                         "create unique index on public.one (id); create unique index on public.two (id);"
                         "create index on public.events (k, id)")
    check.database.query(LET_IN)
    path = tmp_path / "pgcourier.yaml"

    def run(*queues):
        path.write_text(f'database: "{durable.dsn(check.database.name)}"\nsinks:\n  none: {{ type: discard }}\nqueues:\n' +
                        "".join(f"  q{n}: {{ columns: {{ key: k }}, sink: none, {queue} }}\n" for n, queue in enumerate(queues)))
        checked = run_command("check-config", "-c", str(path), "--database")
        done = run_command("run", "-c", str(path), "--until-empty")
        assert checked.returncode == done.returncode
        return done.returncode, done.stderr

    for pair in ("table: events", "table: one"), ("table: one", "table: events"):
        code, text = run(*pair)
        assert code == 78 and 'queue "q0" already reads rows of public.' in text
    halves = "table: events, where: id % 2 = 0", "table: one, where: id % 2 = 1"
    code, text = run(*halves)
    assert code == 78 and 'queue "q0" reads rows of public.one with another lock class' in text
    assert run(*(half + ", lock_class: 7" for half in halves))[0] == 0
    assert run("table: one", "table: two")[0] == 0


@pytest.mark.parametrize("queue, finding", [
    ("'orders', 'public.events', key_column => 'order_id'", None),
    ("'other', 'public.events', key_column => 'order_id'",
     "error: workers take events of this table as queue other, and relays as queue orders: they would deliver the same events; use one"
     " name, or give each a condition that leaves the other's rows alone  fix: select outbox.queue_drop('other');"),
    ("'orders', 'public.events', key_column => 'order_id', lock_class => 5",
     "error: workers take events of queue orders with another lock_class (outbox.queue): they and relays would deliver the same key at once"
     "  fix: select outbox.queue_drop('orders');"),
    ("'orders', 'public.events'",
     "error: workers take events of queue orders with another key (outbox.queue): they and relays would deliver the same key at once"
     "  fix: select outbox.queue_drop('orders');"),
    ("'orders', 'public.events', key_column => 'order_id', condition => 'id > 5'",
     "error: workers take events of queue orders with another condition (outbox.queue): they and relays would deliver the same key at once"
     "  fix: select outbox.queue_drop('orders');"),
    ("'orders', 'public.events', key_column => 'order_id', after => 'archive'",
     "error: workers end events of queue orders with after: archive (outbox.queue), and relays with after: delete: what relays deliver would be in no archive"
     "  fix: select outbox.queue_set('orders', ..., after => 'delete');"),
    ("'orders', 'public.events', key_column => 'order_id', max_attempts => 3, on_exhausted => 'park'",
     "warning: workers give up events of queue orders otherwise than relays: after 3 attempts (park; outbox.queue), and relays after 12 (dead_letter)"
     "  fix: select outbox.queue_set('orders', ..., max_attempts => 12, on_exhausted => 'dead_letter');"),
], ids=["agreed", "name", "lock_class", "key", "condition", "after", "attempts"])
def test_workers_and_relays_of_a_queue_agree_on_it(check, queue, finding):
    check(GOOD)
    check.database.query("grant select, delete on public.events to shop_owner")
    check.database.query(f"select outbox.queue_set({queue})")
    code, findings = check()
    assert (code, findings) == ((0, []) if finding is None else (0 if finding.startswith("warning") else 78, [finding]))


@pytest.mark.parametrize("workers, relays", [("parts", "part"), ("part", "parts")])
def test_workers_of_a_partition_have_events_of_its_table(check, workers, relays):
    check.database.query("create table public.parts (id bigint primary key, order_id bigint, status text) partition by range (id);"
                         "create table public.part partition of public.parts for values from (0) to (1000);"
                         "grant select, delete on public.parts, public.part to shop_owner;"
                         f"select outbox.queue_set('workers', 'public.{workers}', key_column => 'order_id')")
    code, findings = check("select 1", table=f"public.{relays}")
    assert code == 78 and any("workers take events of this table as queue workers" in finding for finding in findings)
