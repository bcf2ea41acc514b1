"""A search_path that puts other things in the place of PostgreSQL's own changes nothing for a relay and the commands."""

import json

import psycopg2
import pytest

from tests.support.servers import PgBouncer, run_command

CONFIG = """
database: "{dsn}"
sinks:
  log: {{ type: file, path: "{out}" }}
queues:
  orders:
    table: public.t
    columns: {{ key: k, type: status, created_at: at }}
    where: "mine.wanted(e.status)"
    sink: log
    destination: "orders"
"""
# Each fails when it is called: what our statements use most, with the very types that they use it with.
TRAP = "create function evil.{name}({arguments}) returns {type} language plpgsql as $$ begin raise exception 'hijacked by {name}'; end $$;"
FUNCTIONS = [("pg_try_advisory_xact_lock", "int, int", "bool"), ("pg_advisory_xact_lock", "int, int", "void"),
             ("set_config", "text, text, bool", "text"), ("current_setting", "text", "text"), ("hashint8", "bigint", "int"),
             ("hashtext", "text", "int"), ("statement_timestamp", "", "timestamptz"), ("clock_timestamp", "", "timestamptz"),
             ("now", "", "timestamptz"), ("row_to_json", "record", "json"), ("format", "text, variadic text[]", "text"),
             ("current_setting", "text, bool", "text"), ("nextval", "regclass", "bigint"), ("lower", "text", "text"), ("pg_is_in_recovery", "", "bool"), ("current_schemas", "bool", "name[]")]
OPERATORS = [("=", "text"), ("=", "bigint"), ("=", "oid"), (">", "bigint"), (">=", "bigint"), ("<=", "bigint"), ("<=", "timestamptz"),
             (">=", "text"), ("<=", "text"), ("=", "timestamptz"), ("~", "text"), ("-", "bigint"), ("*", "bigint"), (">", "int"), ("/", "bigint")]


@pytest.fixture
def hostile(db, pg):
    """A login whose path has a schema of traps before pg_catalog."""
    statements = ["create schema evil; create schema mine; create domain evil.text as int;"]
    statements += [TRAP.format(name=name, arguments=arguments, type=kind) for name, arguments, kind in FUNCTIONS]
    for number, (operator, kind) in enumerate(OPERATORS):
        kind = f"pg_catalog.{kind}" if kind == "text" else kind
        result = "bigint" if operator in "-*/" else "bool"
        statements.append(TRAP.format(name=f"trap_{number}", arguments=f"{kind}, {kind}", type=result) +
                          f"create operator evil.{operator} (leftarg = {kind}, rightarg = {kind}, function = evil.trap_{number});")
    db.psql("create role lured login in role outbox_relay, outbox_writer;" + "".join(statements) +
            "create function mine.wanted(status text) returns bool language plpgsql as"
            " $$ begin return status in (select wanted_status from wanted); end $$;"
            "create table mine.wanted (wanted_status text); insert into mine.wanted values ('a');"
            "create table public.t (id bigserial primary key, k text, status text, at timestamptz default now());"
            "create index on public.t (k, id);"
            "select from outbox.grant_relay('public.t'); grant insert on public.t to lured; grant usage on schema evil, mine to lured;"
            "grant select on mine.wanted to lured;"
            f'alter role lured in database "{db.name}" set search_path = evil, mine, pg_catalog, public;')
    yield pg.dsn(db.name, user="lured")
    db.psql("drop owned by lured; drop role lured")


def test_a_schema_before_pg_catalog_takes_nothing_over(db, relay, hostile, tmp_path):
    out = tmp_path / "out.jsonl"
    db.query("insert into public.t (k, status) values ('x', 'a'), ('x', 'b'), (null, 'a'), ('y', 'a')")
    db.query("insert into outbox.parked (queue, key, event_id, next_at) values ('orders', 'y', 4, now())")
    db.query("insert into outbox.dead (queue, event_id, key, reason, attempts, source_table, original) select 'orders', 9, 'z',"
             " 'no', 1, 'public.t', json_build_object('id', 9, 'k', 'z', 'status', 'a')")
    one = relay(CONFIG.format(dsn=hostile, out=out), until_empty=True)
    for command in (["status"], ["dead", "list"], ["dead", "retry", "--all"], ["check-config", "--database"]):
        done = run_command(*command, "-c", one.config_path)
        assert done.returncode == 0 and "hijacked" not in done.stdout, done.stderr + done.stdout
    assert one.wait(60) == 0
    again = relay(CONFIG.format(dsn=hostile, out=out), until_empty=True)
    assert again.wait(60) == 0
    assert not one.logged("hijacked") and not again.logged("hijacked")
    assert sorted(json.loads(line)["id"] for line in out.read_text().splitlines()) == [1, 3, 4, 9]


def test_behind_a_pooler_such_a_path_is_refused_and_left_to_the_others(db, pg, hostile, tmp_path):
    """A setting made there would be found by whoever gets the session next."""
    path = tmp_path / "pgcourier.yaml"
    with PgBouncer(pg, user="lured", settings={"default_pool_size": 1}) as pooler:
        path.write_text(CONFIG.format(dsn=pooler.dsn(db.name, "lured"), out=tmp_path / "out"))
        for command in (["run"], ["status"], ["dead", "list"], ["check-config", "--database"]):
            done = run_command(*command, "-c", str(path))
            assert done.returncode == 78 and done.stderr.count("\n") == 1
            assert done.stderr.endswith('; alter role "lured" in database "%s" set search_path = evil, mine, public\n' % db.name)
        assert shown(pooler, db.name) == "evil, mine, pg_catalog, public"
    db.psql(done.stderr.split("; ")[-1])
    with PgBouncer(pg, user="lured", settings={"default_pool_size": 1}) as pooler:
        path.write_text(CONFIG.format(dsn=pooler.dsn(db.name, "lured"), out=tmp_path / "out"))
        done = run_command("run", "--until-empty", "-c", str(path))
        assert done.returncode == 0, done.stderr


def test_such_a_path_takes_nothing_over_from_producers(db, pg, hostile):
    """publish() and the ordering trigger run once an event and set no path of their own."""
    db.query("select outbox.install_ordering('public.t', 'k')")
    with psycopg2.connect(hostile) as connection, connection.cursor() as cursor:
        cursor.execute("select outbox.publish('x', 'a', '{}')")
        cursor.execute("insert into public.t (k, status) values ('x', 'a') returning id")
        assert cursor.fetchone() == (2,)
        cursor.execute("select count(*) from pg_catalog.pg_locks where locktype operator(pg_catalog.=) 'advisory'::pg_catalog.text"
                       " and classid operator(pg_catalog.=) 525316013::pg_catalog.oid")
        assert cursor.fetchone() == (1,)
    connection.close()


@pytest.mark.superuser("it migrates, as the owner does, and a pooler does not pass on who logs in")
def test_migrating_through_a_pooler_leaves_its_session_as_it_was(pg, empty_db):
    role = empty_db.owner_dsn.split("user=")[1]
    with PgBouncer(pg, user=role, settings={"default_pool_size": 1}) as pooler:
        done = run_command("migrate", "-d", pooler.dsn(empty_db.name, role))
        assert done.returncode == 0, done.stderr
        assert shown(pooler, empty_db.name) == '"$user", public'


def shown(pooler, dbname):
    """The search_path of the pool's only session."""
    connection = psycopg2.connect(pooler.dsn(dbname))
    with connection, connection.cursor() as cursor:
        cursor.execute("show search_path")
        (path,) = cursor.fetchone()
    connection.close()
    return path
