"""A search_path that puts other things in the place of PostgreSQL's own changes nothing for a relay and the commands."""

import json

import pytest

from tests.support.servers import run_command

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
             ("lower", "text", "text"), ("pg_is_in_recovery", "", "bool"), ("current_schemas", "bool", "name[]")]
OPERATORS = [("=", "text"), ("=", "bigint"), ("=", "oid"), (">", "bigint"), (">=", "bigint"), ("<=", "bigint"), ("<=", "timestamptz"),
             (">=", "text"), ("<=", "text"), ("=", "timestamptz"), ("~", "text"), ("-", "bigint"), ("*", "bigint"), (">", "int")]


@pytest.fixture
def hostile(db, pg):
    """A login whose path has a schema of traps before pg_catalog."""
    statements = ["create schema evil; create schema mine; create domain evil.text as int;"]
    statements += [TRAP.format(name=name, arguments=arguments, type=kind) for name, arguments, kind in FUNCTIONS]
    for number, (operator, kind) in enumerate(OPERATORS):
        kind = f"pg_catalog.{kind}" if kind == "text" else kind
        result = "bigint" if operator in "-*" else "bool"
        statements.append(TRAP.format(name=f"trap_{number}", arguments=f"{kind}, {kind}", type=result) +
                          f"create operator evil.{operator} (leftarg = {kind}, rightarg = {kind}, function = evil.trap_{number});")
    db.psql("drop role if exists lured; create role lured login superuser;" + "".join(statements) +
            "create function mine.wanted(status text) returns bool language plpgsql as"
            " $$ begin return status in (select wanted_status from wanted); end $$;"
            "create table mine.wanted (wanted_status text); insert into mine.wanted values ('a');"
            "create table public.t (id bigserial primary key, k text, status text, at timestamptz default now());"
            "create index on public.t (k, id);"
            f'alter role lured in database "{db.name}" set search_path = evil, mine, pg_catalog, public;')
    return pg.dsn(db.name, user="lured")


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
