"""Whoever may create things in a schema of somebody's search_path cannot have a relay or a command call them.

PostgreSQL takes an operator or function of exactly the types in question, in any schema of the path, before one of pg_catalog
that takes them as some other type: `name || name` and `varchar = varchar` are such."""

import json
import re

import psycopg2
import pytest

from tests.support import hostile
from tests.support.postgres import OWNER_ROLE, RELAY_ROLE
from tests.support.servers import PgBouncer, run_command

ROLE = "lured"
KEYS = {"text": ("text", "'a'", "'b'"), "varchar": ("varchar(20)", "'a'", "'b'"), "bigint": ("bigint", "1", "2"), "int": ("int", "1", "2"),
        "smallint": ("smallint", "1", "2"), "uuid": ("uuid", "'00000000-0000-0000-0000-00000000000a'", "'00000000-0000-0000-0000-00000000000b'"),
        "domain": ("public.label", "'a'", "'b'"), "number": ("public.number", "1", "2")}
TABLE = """
create table public.{name} (id bigserial primary key, k {type}, kind varchar(20), body jsonb, at timestamptz default now(), due timestamptz,
                            urgency int not null default 0);
create index on public.{name} (k, id);
create index on public.{name} (due, id);
create index on public.{name} (urgency desc, id);
insert into public.{name} (k, kind, body, due) values ({one}, 'a', '{{}}', null), ({two}, 'a', '{{}}', now()), ({one}, 'b', '{{}}', null), (null, 'a', '{{}}', null);
select outbox.grant_relay('public.{name}');
grant insert, update (id) on public.{name} to {role};
grant usage on sequence public.{name}_id_seq to {role};
"""
CONFIG = """
database: "{dsn}"
sinks:
  log: {{ type: file, path: "{out}" }}
  refuses: {{ type: exec, command: [/bin/false] }}
queues:
"""
QUEUE = """
  {name}:
    table: public.{name}
    columns: {{ key: k, type: kind, payload: body, created_at: at, not_before: due{urgency} }}
    ordering: {ordering}
    sink: {sink}{destination}
    where: "e.kind <> 'b' and e.at > '2020-01-01'"
    retry: {{ base: 1ms, max: 1ms, attempts: 2 }}
    connections: 1
    {more}
"""
PATHS = ["hostile, public", "hostile, pg_catalog, public"]
ORDERINGS = ["per_key", "unordered", "lease"]


def queue(name, ordering, sink="log", more="after: archive"):
    return QUEUE.format(name=name, ordering=ordering, sink=sink, more=more, destination='\n    destination: "x"' if sink == "log" else "",
                        urgency=", priority: urgency" if ordering == "unordered" else "")


def configuration(dsn, out, ordering):
    queues = [queue(f"e_{kind}", ordering) + queue(f"bad_{kind}", ordering, "refuses", "after: delete") for kind in KEYS]
    stages = [queue("first", ordering, more="then: second"), queue("second", ordering)]
    return CONFIG.format(dsn=dsn, out=out) + "".join(queues + stages)


def prepare(db):
    """Tables with a key of each type, and a login that may do everything that no owner has to do."""
    db.psql(f"grant outbox_relay, outbox_operator, outbox_writer, outbox_worker to {ROLE}; create domain public.label as varchar(30);"
            "create domain public.number as int check (value > 0);")
    tables = [(f"{prefix}_{kind}", *rest) for kind, rest in KEYS.items() for prefix in ("e", "bad")]
    for name, kind, one, two in [*tables, ("first", *KEYS["varchar"]), ("second", *KEYS["varchar"])]:
        db.psql(TABLE.format(name=name, type=kind, one=one, two=two, role=ROLE))


def set_path(db, path):
    """Not for the tests' own sessions."""
    db.psql("".join(f'alter role {role} in database "{db.name}" set search_path = {path};' for role in (ROLE, OWNER_ROLE)))


@pytest.fixture(scope="module")
def lured_role(pg):
    """A role belongs to the server, not to a database: every test that logs in as this one takes it from here, and none is left behind."""
    pg.query(f"create role {ROLE} login")
    yield
    pg.query(f"drop role {ROLE}")


@pytest.fixture(scope="module")
def lured_template(pg, migrated_template, lured_role):
    database = pg.create_database(migrated_template())
    hostile.build(database)
    prepare(database)
    pg.forget(database.name)
    yield database.name
    database.drop()


@pytest.fixture
def lured(pg, lured_template):
    """A database in which everybody's path has the schema of somebody without rights."""
    database = pg.create_database(lured_template)
    database.log_place = log_place(pg)
    yield database
    database.drop()


def log_place(pg):
    with open(pg.log_path, "rb") as log:
        return log.seek(0, 2)


def good(db, *command, code=0):
    done = run_command(*command)
    called = hostile.calls(db.server, db.log_place)
    assert not called and hostile.CALLED not in done.stdout + done.stderr, (command, called[:3], done.stdout, done.stderr)
    assert done.returncode == code, (command, done.stdout, done.stderr)
    return done.stdout


def work(db, path, dsn):
    """All that a relay and its operators do."""
    good(db, "check-config", "--database", "-c", path)
    good(db, "run", "--until-empty", "-c", path)
    assert db.value("select count(*) from outbox.archive") == len(KEYS) * 3 + 6
    for command in (["status"], ["failures"], ["dead", "list"], ["schedule", "list"], ["check-config", "--database"]):
        good(db, *command, "-c", path)
    letters = db.query("select dead_id::text from outbox.dead order by dead_id")
    assert len(letters) == len(KEYS) * 3
    for name in ("first", *(f"{prefix}_{kind}" for kind in KEYS for prefix in ("e", "bad"))):
        good(db, "pause", name, "-c", path)
        good(db, "drain", name, "-c", path)
        good(db, "resume", name, "-c", path)
    good(db, "dead", "show", "-c", path, "--id", *letters[0])
    good(db, "dead", "retry", "--all", "-c", path)
    good(db, "run", "--until-empty", "-c", path)
    for kind in KEYS:
        good(db, "replay", "-c", path, "--queue", f"e_{kind}", "--since", "2020-01-01")
        good(db, "replay", "-c", path, "--queue", f"bad_{kind}", "--from", "dead", "--since", "2020-01-01", "--to", "log",
             "--destination", "x")
    good(db, "dead", "drop", "--all", "-c", path)
    good(db, "publish", "-d", dsn, "--key", "k", "--payload", "{}", "--dedupe-key", "d")
    for verdict in (["done"], ["fail", "--error", "no"], ["extend"], ["release"]):
        good(db, "publish", "-d", dsn, "--key", verdict[0], "--payload", "{}")
        taken = json.loads(good(db, "take", "tasks", "-d", dsn, "--worker", "w"))
        good(db, *verdict, taken["token"], "-d", dsn)
    good(db, "run", "--until-empty", "-c", path)


@pytest.mark.parametrize("pooled", [False, True], ids=["direct", "pooled"])
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_what_others_create_in_the_path_is_never_called(lured, pg, tmp_path, ordering, pooled):
    set_path(lured, PATHS[(ORDERINGS.index(ordering) + pooled) % 2])
    lured.psql(f"set role {OWNER_ROLE};"
               "select outbox.queue_set('tasks', 'outbox.events', key_column => 'aggregateid', payload_column => 'payload')")
    path = tmp_path / "pgcourier.yaml"
    with PgBouncer(pg, user=ROLE, settings={"default_pool_size": 40}) as pooler:
        dsn = pooler.dsn(lured.name, ROLE) if pooled else pg.dsn(lured.name, user=ROLE)
        path.write_text(configuration(dsn, tmp_path / "out", ordering))
        work(lured, str(path), dsn)
    good(lured, "schedule", "list", "-d", dsn if not pooled else pg.dsn(lured.name, user=ROLE))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("pooled", [False, pytest.param(True, marks=pytest.mark.superuser(
    "it migrates, as the owner does, and a pooler does not pass on who logs in"))], ids=["direct", "pooled"])
def test_nor_by_the_owner_of_the_schema(pg, lured_role, empty_db, path, pooled):
    empty_db.log_place = log_place(pg)
    hostile.build(empty_db)
    set_path(empty_db, path)
    with PgBouncer(pg, user=OWNER_ROLE, settings={"default_pool_size": 1}) as pooler:
        dsn = pooler.dsn(empty_db.name, OWNER_ROLE) if pooled else empty_db.owner_dsn
        good(empty_db, "migrate", "-d", dsn)
        good(empty_db, "migrate", "-d", dsn)
        empty_db.psql(f"set role {OWNER_ROLE}; select outbox.queue_set('tasks', 'outbox.events', payload_column => 'payload')")
        good(empty_db, "schedule", "set", "hourly", "--queue", "tasks", "--every", "1 hour", "-d", dsn)
        good(empty_db, "schedule", "set", "nightly", "--queue", "tasks", "--cron", "0 3 * * *", "--zone", "Europe/Berlin", "-d", dsn)
        good(empty_db, "schedule", "drop", "hourly", "-d", dsn)
        assert not pooled or shown(pooler, empty_db.name) == path


def test_what_others_leave_in_a_session_of_the_pool_changes_nothing_and_ours_is_not_left_to_them(lured, pg, tmp_path):
    """The pool has one session for the commands, which whoever was there before us has set."""
    path = tmp_path / "pgcourier.yaml"
    with PgBouncer(pg, user=ROLE, settings={"default_pool_size": 1}) as pooler:
        path.write_text(configuration(pooler.dsn(lured.name, ROLE), tmp_path / "out", "per_key"))
        connection = psycopg2.connect(pooler.dsn(lured.name))
        connection.autocommit = True
        connection.cursor().execute("set search_path = hostile, pg_catalog, public; create temporary table pg_class (oid oid)")
        connection.close()
        for command in (["status"], ["dead", "list"], ["check-config", "--database"], ["pause", "first"], ["drain", "first"], ["resume", "first"]):
            good(lured, *command, "-c", str(path))
            assert shown(pooler, lured.name) == "hostile, pg_catalog, public"


def test_such_a_path_takes_nothing_over_from_producers(lured, pg):
    """publish() and the ordering trigger run once an event and set no path of their own."""
    set_path(lured, PATHS[1])
    lured.psql("select outbox.install_ordering('public.e_varchar', 'k')")
    connection = psycopg2.connect(pg.dsn(lured.name, user=ROLE))
    with connection, connection.cursor() as cursor:
        cursor.execute("select outbox.publish('x', 'a', '{}', headers => '{}')")
        cursor.execute("insert into public.e_varchar (k, kind) values ('x', 'a') returning id")
        assert cursor.fetchone() == (6,)
        cursor.execute("select pg_catalog.count(*) from pg_catalog.pg_locks where locktype operator(pg_catalog.=) 'advisory'::pg_catalog.text"
                       " and classid operator(pg_catalog.=) 525316013::pg_catalog.oid")
        assert cursor.fetchone() == (1,)
    connection.close()
    assert not hostile.calls(pg, lured.log_place)


def shown(pooler, dbname):
    """The search_path of the pool's only session."""
    connection = psycopg2.connect(pooler.dsn(dbname))
    with connection, connection.cursor() as cursor:
        cursor.execute("show search_path")
        (path,) = cursor.fetchone()
    connection.close()
    return path


NAMES = """
set check_function_bodies = off;
create schema shop; create schema other; grant usage on schema shop, other to public;
create function shop.wanted(s text) returns bool language sql immutable as $$ select s <> 'b' $$;
create function other.hidden(s text) returns bool language sql immutable as $$ select true $$;
create function other.calls(s text) returns bool language sql immutable as $$ select wanted(s) $$;
create function other.same(a text, b text) returns bool language sql immutable as 'select true';
create operator shop.=== (leftarg = text, rightarg = text, function = other.same);
create type shop.mood as enum ('a', 'b');
create table shop.lost (k text);
"""
NOT_FOUND = {
    "wanted(e.kind)": "function wanted.* does not exist; (.*; )?names are looked up in pg_catalog alone, and not in the"
                      " search_path of shop_courier: write shop.wanted$",
    "e.k <> 'ä' and \\\"wanted\\\"(e.kind)": "write shop.wanted$",
    "hidden(e.kind)": "function hidden.* does not exist; (.*; )?names are looked up in pg_catalog alone: write other.hidden$",
    "e.kind === 'a'": "operator does not exist: .*; names are looked up in pg_catalog alone, .*: write operator[(]shop.===[)]$",
    "e.kind::mood = 'a'": 'type "mood" does not exist; .*: write shop.mood$',
    "e.k in (select k from lost)": 'relation "lost" does not exist; .*: write shop.lost$',
    "nowhere(e.kind)": "function nowhere.* does not exist; No function matches .*[.]$",
    "shop.nowhere(e.kind)": "function shop.nowhere.* does not exist; No function matches .*[.]$",
    "length(e.id) > 1": "function length.* does not exist; No function matches .*[.]$",
    "other.calls(e.kind)": "function wanted.* does not exist; .*; functions of a condition need a search_path of their own .*, or write names"
                           " with their schema$",
}


@pytest.fixture
def names(db, tmp_path):
    """names(where) -> what check-config says of the queue."""
    db.psql(NAMES + TABLE.format(name="first", type="text", one="'a'", two="'b'", role=RELAY_ROLE) + TABLE.format(
        name="second", type="text", one="'a'", two="'b'", role=RELAY_ROLE) +
            f'alter role {RELAY_ROLE} in database "{db.name}" set search_path = shop, public;')
    path = tmp_path / "pgcourier.yaml"

    def check(where="true", more=""):
        path.write_text(CONFIG.format(dsn=db.dsn, out=tmp_path / "out") + queue("first", "per_key", more=more).replace(
            '"e.kind <> \'b\' and e.at > \'2020-01-01\'"', f'"{where}"') + (queue("second", "per_key") if more else ""))
        done = run_command("check-config", "--database", "-c", str(path))
        assert done.stderr == ""
        return done.returncode, [line for line in done.stdout.splitlines() if re.match("(first|second): ", line) and "is off: " not in line]

    check.path = path
    return check


@pytest.mark.parametrize("where", NOT_FOUND)
def test_a_name_in_a_condition_that_is_not_found_is_said_where_it_is(names, where):
    code, (line,) = names(where)
    assert code == 78 and f"error: {names.path}:" in line and re.search(NOT_FOUND[where], line), line


def test_a_condition_that_writes_its_names_with_their_schemas_is_used(names, db):
    where = "shop.wanted(e.kind) and e.kind operator(shop.===) 'x' and e.kind::shop.mood = 'a'"
    assert names(where) == (0, [])
    done = run_command("run", "--until-empty", "-c", str(names.path))
    assert done.returncode == 0, done.stderr
    assert db.query("select kind from public.first") == [("b",)]


def test_a_column_whose_type_has_operators_elsewhere_is_warned_of(names, db):
    """It would be compared as text, and so by its case."""
    db.psql("create extension citext schema shop; alter table public.first alter kind type shop.citext")
    code, (line,) = names("e.kind = 'A'")
    assert code == 0 and "warning" in line and "column kind is of type shop.citext" in line and "operator(shop.=)" in line
    assert names("e.kind operator(shop.=) 'A'") == (0, [])
    assert names("e.k = 'kindred'") == (0, [])


def test_functions_of_triggers_that_have_no_path_of_their_own_are_warned_of(names, db):
    db.psql("create function shop.note() returns trigger language plpgsql as $$ begin return coalesce(new, old); end $$;"
            "create trigger noted after insert or delete on public.first for each row execute function shop.note();"
            "create trigger changed before update on public.first for each row execute function shop.note();"
            "create trigger \"Of us\" before insert on public.second for each row execute function shop.note();"
            "create trigger gone after delete on public.second for each row execute function shop.note();"
            "create trigger off after delete on public.first for each row execute function shop.note(); alter table public.first disable trigger off;"
            "select outbox.install_ordering('public.first', 'k')")
    code, lines = names(more="then: second")
    assert code == 0 and [re.sub(": in a session of ours .*  fix:", "  fix:", line) for line in lines] == [
        f"{queue}: warning: trigger {trigger} on public.{table} calls shop.note(), which has no search_path of its own  fix: alter function"
        " shop.note() set search_path = shop, public, pg_temp;"
        for queue, trigger, table in (("first", "noted", "first"), ("first", '"Of us"', "second"),
                                      ("second", '"Of us"', "second"), ("second", "gone", "second"))], lines
    db.psql("alter function shop.note() set search_path = shop, public, pg_temp")
    assert names(more="then: second") == (0, [])


def test_the_rest_of_a_hostile_path_is_not_run_to_find_a_name(lured, pg, tmp_path):
    set_path(lured, PATHS[1])
    path = tmp_path / "pgcourier.yaml"
    text = configuration(pg.dsn(lured.name, user=ROLE), tmp_path / "out", "per_key").replace("e.kind <> 'b'", "operator_bool(e.kind, e.kind)")
    path.write_text(text)
    assert "write hostile.operator_bool" in good(lured, "check-config", "--database", "-c", str(path), code=78)
