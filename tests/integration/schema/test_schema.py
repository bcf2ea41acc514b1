"""The outbox schema: migrations, roles, archive partitions."""

import os
import re
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg2
import pytest

from tests.support.postgres import OWNER_ROLE
from tests.support.process import REPO
from tests.support.servers import run_command

SQL = os.path.join(REPO, "sql")
MIGRATIONS = sorted(name[:-4] for name in os.listdir(os.path.join(SQL, "schema")))
NEWEST = int(MIGRATIONS[-1][:3])

OBJECTS = """
    select c.relname || ' ' || c.relkind::text || ' ' || coalesce(string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod),
                                                                     ',' order by a.attnum), '')
      from pg_class c left join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
     where c.relnamespace = 'outbox'::regnamespace group by c.oid, c.relname, c.relkind
    union all select p.oid::regprocedure || ' ' || md5(p.prosrc) from pg_proc p where p.pronamespace = 'outbox'::regnamespace
    union all select version || ' ' || name from outbox.schema_version
    order by 1"""


@pytest.mark.usefixtures("one_day")
def test_migrate_applies_what_is_missing_and_nothing_twice(empty_db):
    first = run_command("migrate", "-d", empty_db.owner_dsn)
    assert first.returncode == 0 and first.stdout.splitlines() == [f"applied {name}" for name in MIGRATIONS]
    objects = empty_db.query(OBJECTS)
    second = run_command("migrate", "-d", empty_db.owner_dsn)
    assert second.returncode == 0
    assert second.stdout == f"nothing to do: the outbox schema has version {NEWEST}\n"
    assert empty_db.query(OBJECTS) == objects


@pytest.mark.usefixtures("one_day")
def test_printed_migrations_make_the_same_schema(db, empty_db):
    printed = run_command("migrate", "--print")
    assert printed.returncode == 0
    empty_db.psql(printed.stdout)
    assert empty_db.query(OBJECTS) == db.query(OBJECTS)


def test_concurrent_migrations_take_turns(empty_db):
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: run_command("migrate", "-d", empty_db.owner_dsn), range(4)))
    assert [one.returncode for one in done] == [0] * 4, [one.stderr for one in done]
    applied = [line for one in done for line in one.stdout.splitlines() if line.startswith("applied")]
    assert sorted(applied) == [f"applied {name}" for name in MIGRATIONS]


def test_a_migration_that_cannot_get_its_turn_gives_up(empty_db):
    other = empty_db.connect(autocommit=False)
    other.cursor().execute("select pg_advisory_xact_lock(1977447428, 0)")
    done = run_command("migrate", "-d", empty_db.owner_dsn)
    other.close()
    assert done.returncode == 75
    assert done.stderr == ("pgcourier: another pgcourier migrate is running: canceling statement due to lock timeout\n")


def test_a_newer_schema_is_refused(db):
    db.query("insert into outbox.schema_version values (999, 'later')")
    done = run_command("migrate", "-d", db.owner_dsn)
    assert done.returncode == 78
    assert done.stderr == (f"pgcourier: the database's outbox schema has version 999 and this pgcourier knows up to "
                           f"{NEWEST}; install a newer pgcourier\n")


def test_a_failed_migration_leaves_nothing_of_itself(empty_db):
    empty_db.query(f"create schema outbox authorization {OWNER_ROLE}; create table outbox.dead ()")
    done = run_command("migrate", "-d", empty_db.owner_dsn)
    assert done.returncode == 78 and '001_tables: relation "dead" already exists' in done.stderr
    assert empty_db.query("select relname from pg_class where relnamespace = 'outbox'::regnamespace") == [("dead",)]


def test_an_owner_who_may_not_create_roles_is_told_what_to_run(own_pg):
    own_pg.query("create role shop login")
    database = own_pg.create_database()
    own_pg.query(f"alter database {database.name} owner to shop")
    done = run_command("migrate", "-d", own_pg.dsn(database.name, user="shop"))
    assert done.returncode == 0
    advice = re.search(r"Have an administrator run: (.*;) Then, as shop: (.*;)", done.stderr)
    database.query(advice.group(1))
    connection = own_pg.connect(database.name, user="shop")
    connection.cursor().execute(advice.group(2))
    connection.close()
    assert database.value("select has_table_privilege('outbox_relay', 'outbox.parked', 'insert')")


def test_a_role_without_rights_is_told_so(own_pg):
    own_pg.query("create role nobody_here login")
    done = run_command("migrate", "-d", own_pg.dsn(user="nobody_here"))
    assert done.returncode == 77 and "permission denied for database postgres" in done.stderr


INSERT = "insert into outbox.events (aggregateid) values ('k')"
MATRIX = [
    # statement, who may: w(riter), r(elay), k: worker, m(onitor)
    ("select outbox.publish('k', 't', '{}')", "w"),
    (INSERT, "w"),
    (INSERT + " returning id", "w"),
    (INSERT + " returning payload", ""),
    ("select payload from outbox.events", "r"),
    ("delete from outbox.events where id = 1", "r"),
    ("update outbox.events set payload = null", ""),
    ("truncate outbox.events", ""),
    ("select last_value from outbox.events_id_seq", "r"),
    ("select setval('outbox.events_id_seq', 1)", ""),
    ("insert into outbox.parked (queue, key, event_id, next_at) values ('q', 'k', 1, now())", "ro"),
    ("update outbox.parked set attempts = 1", "ro"),
    ("delete from outbox.parked where key = 'x'", "ro"),
    ("select * from outbox.parked", "ro"),
    ("insert into outbox.dead (queue, event_id, reason, attempts, source_table, original)"
     " values ('q', 1, '', 1, 't', '{}')", "ro"),
    ("select * from outbox.dead", "r"),
    ("update outbox.dead set reason = ''", ""),
    ("insert into outbox.archive (queue, event_id, original) values ('q', 1, '{}')", "r"),
    ("select * from outbox.archive", ""),
    ("delete from outbox.archive", ""),
    ("drop table outbox.archive_default", ""),
    ("select outbox.archive_prepare()", "r"),
    ("select outbox.archive_expire('q', null, true)", "r"),
    ("select * from outbox.archive_retention", ""),
    ("select outbox.note_served('q')", "r"),
    ("select * from outbox.served", ""),
    ("select outbox.pause('q', 'k', 'why', is_new => true)", "r"),
    ("select outbox.resume('q', is_new => true)", "r"),
    ("select outbox.is_paused('there')", "r"),
    ("select outbox.in_flight('there')", "r"),
    ("select * from outbox.paused", "rmo"),
    ("insert into outbox.paused (queue) values ('q')", ""),
    ("select * from outbox.status_parked", "rm"),
    ("select * from outbox.status_closed", "rm"),
    ("select * from outbox.status_dead", "rm"),
    ("select * from outbox.status_events", "rm"),
    ("select * from outbox.status_leases", "m"),
    ("select * from outbox.status_late_verdicts", "m"),
    ("select * from outbox.overview", "m"),
    ("select * from outbox.failures", "rm"),
    ("select * from outbox.stuck", "m"),
    ("select * from outbox.by_hour", "m"),
    ("select * from outbox.workers", "m"),
    ("select outbox.count_some('outbox.events')", ""),
    ("select outbox.queue_set('tasks')", ""),
    ("select outbox.queue_drop('tasks')", ""),
    ("select * from outbox.queue", "ro"),
    ("delete from outbox.queue", ""),
    ("select * from outbox.take('there')", "k"),
    ("select outbox.done(gen_random_uuid())", "k"),
    ("select outbox.done_all('{}')", "k"),
    ("select outbox.fail(gen_random_uuid(), 'no')", "k"),
    ("select outbox.extend(gen_random_uuid())", "k"),
    ("select outbox.release(gen_random_uuid())", "k"),
    ("select outbox.end_leases('done', '{}')", ""),
    ("select * from outbox.queue_1_lease('{}', '{}', 'w', '1 s', 1, null)", ""),
    ("select outbox.install_ordering('outbox.events', 'aggregateid')", ""),
    ("select * from outbox.replay('there', ids => '{1}')", "o"),
    ("select outbox.replay_lock(1)", "o"),
    ("select outbox.replay_headers('{}', 1)", ""),
    ("select from outbox.replay", "mo"),
    ("select from outbox.archive", ""),
    ("select outbox.grant_roles()", ""),
    ("insert into outbox.schema_version values (9, 'x')", ""),
    ("create table outbox.mine ()", ""),
]


@pytest.mark.parametrize("statement, allowed", MATRIX, ids=[row[0][:60] for row in MATRIX])
def test_each_role_may_do_its_work_and_no_more(db, statement, allowed):
    db.query("select outbox.queue_set('there'); insert into outbox.replay (queue, source, events) values ('there', 'archive', 1)")
    roles = {"w": "outbox_writer", "r": "outbox_relay", "k": "outbox_worker", "m": "outbox_monitor", "o": "outbox_operator", "": "pg_monitor"}
    found = ""
    for letter, role in roles.items():
        connection = db.connect(autocommit=False)
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"set local role {role}")
                cursor.execute(statement)
            found += letter or "(nobody's role)"
        except psycopg2.errors.InsufficientPrivilege:
            pass
        finally:
            connection.close()
    assert found == allowed


FUNCTIONS = """
    select oid::regprocedure::text, prosecdef, coalesce(proconfig, '{}'), has_function_privilege('public', oid, 'execute')
      from pg_proc where pronamespace = 'outbox'::regnamespace"""


def test_functions_are_granted_by_name_and_those_with_their_owners_rights_have_a_path_of_their_own(db):
    """Made by migrating, and made for a table."""
    db.query("select outbox.install_ordering('outbox.events', 'aggregateid')")
    functions = db.query(FUNCTIONS)
    assert [name for name, _, _, public in functions if public] == []
    with_rights = [(name, settings) for name, owners, settings, _ in functions if owners]
    assert len(with_rights) > 5 and len(functions) > 30
    assert [name for name, settings in with_rights if "search_path=pg_catalog, pg_temp" not in settings] == []


# What has no search_path of its own, and why that is safe.
WITHOUT_PATH = {
    "publish": "runs once an event; every name in it is qualified",
    "order_by_key_": "as publish()",
    "wake_by_statement": "as publish()",
    "wake_by_row": "as publish()",
    "wake_by_queue": "as publish()",
    "drain": "commits, which a procedure with settings of its own may not; every name in it is qualified",
    "comes_again": "inlined; every name in it is qualified",
    "comes_after": "inlined; every name in it is qualified",
    "queue_1_": "made for a queue, and called by functions that have the path",
}


def test_functions_have_the_path_of_pg_catalog_alone_but_for_a_few(db):
    db.query("select outbox.install_ordering('outbox.events', 'aggregateid')")
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('tasks', not_before_column => 'not_before', delayed => 'pass')")
    names = {name.removeprefix("outbox.").split("(")[0] for name, _, settings, _ in db.query(FUNCTIONS) if "search_path=pg_catalog, pg_temp" not in settings}
    assert {next((known for known in WITHOUT_PATH if name == known or known.endswith("_") and name.startswith(known)), name) for name in names} == set(WITHOUT_PATH)


def test_a_writer_may_insert_where_the_ordering_trigger_is(db):
    db.query("select outbox.install_ordering('outbox.events', 'aggregateid')")
    assert db.query(f"set role outbox_writer; {INSERT} returning id")


def test_an_existing_table_is_granted_with_its_schema_and_sequence(db):
    db.query('create schema "My Shop"; create table "My Shop"."Events" (id bigserial primary key, order_id bigint)')
    db.query("""select outbox.grant_relay('"My Shop"."Events"')""")
    assert db.query('set role outbox_relay; delete from "My Shop"."Events"; select last_value from "My Shop"."Events_id_seq"')
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        db.query('set role outbox_relay; insert into "My Shop"."Events" (order_id) values (1)')
    for role, hint in (("'no such'", 'create role "no such" nologin;'), ("null", "create role outbox_relay nologin;")):
        with pytest.raises(psycopg2.errors.UndefinedObject) as refused:
            db.query(f"""select outbox.grant_relay('"My Shop"."Events"', {role})""")
        assert hint in refused.value.diag.message_hint


@pytest.mark.usefixtures("one_day")
def test_the_archive_has_a_partition_for_every_coming_day(db):
    db.query("insert into outbox.archive (queue, event_id, original) values ('q', 1, '{\"a\" : 1}')")
    assert db.query("select tableoid::regclass = ('outbox.archive_' || to_char(now() at time zone 'utc', 'YYYYMMDD'))::regclass,"
                    " original::text from outbox.archive") == [(True, '{"a" : 1}')]
    assert db.value("select outbox.archive_prepare()") == 0
    assert db.value("select outbox.archive_prepare(9)") == 2


@pytest.mark.usefixtures("one_day")
def test_rows_that_came_before_their_partition_move_into_it(db):
    db.query("insert into outbox.archive (queue, event_id, original, archived_at)"
             " select 'q', n, '{}', now() + interval '10 days' + n * interval '1 day' from generate_series(0, 3) n")
    assert db.value("select count(*) from outbox.archive_default") == 4
    db.query("select outbox.archive_prepare(12)")
    assert db.value("select count(*) from outbox.archive_default") == 1
    assert db.value("select count(*) from outbox.archive") == 4


@pytest.mark.usefixtures("one_day")
def test_relays_prepare_the_archive_at_the_same_time(db):
    with ThreadPoolExecutor(6) as pool:
        made = list(pool.map(lambda _: db.value("select outbox.archive_prepare(30)"), range(6)))
    assert sorted(made) == [0, 0, 0, 0, 0, 23]


@pytest.mark.usefixtures("one_day")
def test_settling_goes_on_while_the_archive_is_prepared(db):
    settling = db.connect(autocommit=False)
    settling.cursor().execute("insert into outbox.archive (queue, event_id, original) values ('q', 1, '{}')")
    assert db.value("select outbox.archive_prepare(9)") == 2
    settling.commit()
    settling.close()


@pytest.mark.usefixtures("one_day")
def test_the_archive_is_waited_for_no_longer_than_the_caller_would(db):
    """Leases of his may run out meanwhile."""
    report = db.connect(autocommit=False)
    report.cursor().execute("select count(*) from outbox.archive")
    before = time.monotonic()
    with pytest.raises(psycopg2.errors.LockNotAvailable):
        db.query("set lock_timeout = '100ms'; select outbox.archive_prepare(9)")
    assert time.monotonic() - before < 2.0
    report.close()
    assert db.query("set lock_timeout = '7s'; begin; select outbox.archive_prepare(9); show lock_timeout") == [("7s",)]


def test_archive_days_do_not_depend_on_the_time_zone(db):
    bounds = "select pg_get_expr(relpartbound, oid) from pg_class where relname ~ '^archive_2' order by relname desc limit 1"
    db.query("set timezone = 'Pacific/Auckland'; select outbox.archive_prepare(8)")
    assert re.findall(r"\d\d:00:00\+00", db.value("set timezone = 'utc'; " + bounds)) == ["00:00:00+00"] * 2


def statements():
    folders = ["table", "commands", "upkeep"]
    return [os.path.join(folder, name) for folder in folders for name in sorted(os.listdir(os.path.join(SQL, folder)))]


VALUES = {"table": '"outbox"."events"', "key": 'e."aggregateid"', "id": '"id"', "where": "type = 'x'", "class": "1",
          "created_at": '"created_at"', "not_before": '"not_before"', "state": "outbox", "written": "$1::text", "hash": "hashtext($1::text)", "columns": '"aggregateid"', "fields": 'r."aggregateid"', "keyless": "false",
          "known": "'{aggregateid}'::text[]", "moved": "'{}'::text[]", "moved_to": "'{}'::text[]",
          "conflict": "(queue, key) where not keyless", "name": "d.key", "entry_key": "d.key", "entry": "d.key", "closed": "p.key = $2::text",
          "hash_of_name": "hashtext(n.name)", "put_id": "e.id", "key_column": "'a'::text", "generated": "'{}'::text[]", "payload": "'payload'::text",
          "mapped": "'{}'::text[]", "computed": "null::text[]", "compared": "('a', p.computed[1], r.type)", "computes": "false",
          "key_is": 'e."aggregateid" = $2::text',
          "responses": "", "undone": "true", "lives": "true", "wanted": "true", "needed": "false", "next_table_name": "'outbox.events'", "handed": ', e."aggregateid"', "next_table": '"outbox"."events"', "next_columns": '"aggregateid", "type"',
          "next_values": "g.\"aggregateid\", 'x'", "next_names": "'\"aggregateid\"', '\"type\"'"}


@pytest.mark.parametrize("path", statements())
def test_every_statement_fits_the_schema(db, path):
    with open(os.path.join(SQL, path)) as file:
        text = file.read()
    head = [line for line in text.splitlines() if line.startswith("--")]
    body = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    sql = re.sub(r"::|:([a-z_]+)", lambda found: VALUES[found.group(1)] if found.group(1) else "::", body)
    assert len(re.findall(r";$", body, re.MULTILINE)) == 1, "one statement a file"
    for number in set(re.findall(r"\$\d", body)):
        assert any(number in line for line in head), f"{number} is not in the head"
    db.query("set search_path = pg_catalog, pg_temp; prepare s as " + sql.strip().removeprefix("explain "))
