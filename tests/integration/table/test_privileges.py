"""What each command needs, as docs/security.md lists it: that is enough, and one right less is one line that names it and the
statement that mends it."""

import os
import re

import pytest

from tests.conftest import migrate
from tests.support.process import REPO
from tests.support.servers import Reply, run_command, wait_until

CONFIG = """
database: "{dsn}"
sinks: {{ web: {{ type: http, url: "{url}" }} }}
queues:
  orders:
    table: shop.events
    columns: {{ key: order_id }}
    sink: web
    after: {after}
    retry: {{ base: 1ms, max: 1ms, attempts: 5 }}
"""
TABLE = "create schema shop; create table shop.events (id bigint primary key, order_id bigint); create index on shop.events (order_id, id)"
LETTER = ("insert into outbox.dead (queue, event_id, key, reason, attempts, source_table, original)"
          " values ('orders', 101, '8', 'no', 1, 'shop.events', '{\"id\": 101, \"order_id\": 8}')")
CLOSED = "insert into outbox.parked (queue, key, event_id, next_at) values ('orders', '9', 102, 'infinity')"
EMPTY = "truncate shop.events, outbox.dead, outbox.parked"


def documented():
    """{command: [(right, object)]} of the page's table. A row that begins with "also" adds to the one before; of the others the
    page says once what almost all of them need."""
    with open(os.path.join(REPO, "docs/security.md")) as file:
        page = file.read().split("## What each command needs")[1]
    assert "\nEvery command but `migrate` and `bench` also needs `usage on schema outbox`." in page
    rows = [(command, text if text.startswith(("also ", "owns ")) or command in ("migrate", "bench") else f"`usage on schema outbox`, {text}")
            for command, text in re.findall(r"^\| `([^|]*)` \| [^|]* \| (.*) \|$", page, re.MULTILINE)]
    return {command: [(right, thing) for rights, thing in re.findall(r"`([a-z_, ()]+) on ([^`]+)`", text) for right in rights.split(", ")]
            for command, text in rows}


NEEDS = documented()
VERDICTS = ["done", "fail", "extend", "release"]
COMMANDS = ["run", "status", "failures", "dead list", "dead show", "dead retry", "dead drop", "replay", "pause", "drain", "resume", "publish", "take",
            *VERDICTS, "schedule list"]
ARCHIVED = "run` with `after: archive"
LOCKING = "run` with `ordering: unordered` and `locks: rows"
PURGED = "run` with `dead_retention"
SCHEDULED = "run` with `outbox.schedule"
SCHEDULING = "schedule set` and `drop"  # the owner's
AFTER = "run` with `columns.after"
OTHERS = "failures`, `dead`, `pause`, `drain` and `resume` of an `outbox.queue"
HANDED_ON = "run` with `then"  # test_stages.py takes them away


def test_the_page_lists_every_command_that_talks_to_the_database():
    assert list(NEEDS) == ["run", ARCHIVED, LOCKING, PURGED, SCHEDULED, AFTER, HANDED_ON, *COMMANDS[1:], SCHEDULING, OTHERS, "migrate", "bench"]


@pytest.fixture
def somebody(db, pg):
    """A login without any right, in a database with one of everything that commands work on."""
    role = f"somebody_of_{db.name}"
    pg.query(f"create role {role} login")
    db.query(TABLE)
    yield role
    db.query(f"drop owned by {role}")
    db.drop()
    pg.query(f"drop role {role}")


@pytest.fixture
def somebody_new(empty_db, pg):
    """The same in a database with nothing in it."""
    role = f"somebody_of_{empty_db.name}"
    pg.query(f"create role {role} login")
    yield role
    empty_db.drop()
    pg.query(f"drop role {role}")


@pytest.fixture
def work(db, http, somebody, tmp_path):
    """work(command) -> what came of it, with something to do for it."""
    path = tmp_path / "pgcourier.yaml"
    db.query("select outbox.queue_set('tasks')")

    def lease():
        db.query("insert into outbox.events (aggregateid) values ('a'); update outbox.parked set next_at = now() where token is not null")
        return str(db.value("select token from outbox.take('tasks')"))

    def run(command, after="delete"):
        dsn = db.server.dsn(db.name, somebody)
        path.write_text(CONFIG.format(dsn=dsn, url=http.url, after=after))
        db.query(f"{EMPTY}; insert into shop.events values (102, 9), (103, 9); {LETTER}; {CLOSED}")
        if command == "publish":
            return run_command("publish", "-d", dsn, "--key", "k")
        if command == "take":
            return run_command("take", "tasks", "-d", dsn)
        if command in VERDICTS:
            return run_command(command, lease(), "-d", dsn)
        if command == "replay":
            return run_command("replay", "-c", str(path), "--queue", "orders", "--from", "dead", "--id", "101")
        if command.split()[0] in ("pause", "drain", "resume"):
            return run_command(*command.split(), *([] if " " in command else ["orders"]), "-c", str(path))
        words = command.split() + (["--until-empty"] if command == "run" else ["--all"] if command in ("dead retry", "dead drop") else [])
        return run_command(*words, "-c", str(path))

    return run


def grant(db, role, rights):
    db.query("".join(f"grant {right} on {thing} to {role};" for right, thing in rights))


def mend(db, text, role):
    """Does as the last line says, after taking it at its word; returns what it says is missing."""
    (line,) = [line for line in text.splitlines() if line.startswith("pgcourier: ")]
    assert f"{role} has no " in line
    db.query(line.split("  fix: ")[1])
    return line.split(f"{role} has no ")[1].split("  fix: ")[0]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_right_that_is_missing_is_named_with_the_statement_that_grants_it(db, work, somebody, command):
    grant(db, somebody, NEEDS[command])
    done = work(command)
    assert done.returncode == 0, done.stderr
    for right, thing in NEEDS[command]:
        db.query(f"revoke {right} on {thing} from {somebody}")
        done = work(command)
        assert done.returncode == 77 and done.stdout == "", (right, thing, done)
        assert mend(db, done.stderr, somebody) == f"{re.sub(r'[(].*[)]', lambda columns: columns[0].lower(), right.upper())} on {thing}"
        assert work(command).returncode == 0, (right, thing)
        db.query(f"revoke outbox_relay, outbox_writer, outbox_worker, outbox_monitor, outbox_operator from {somebody}")
        grant(db, somebody, [(right, thing)])


@pytest.mark.parametrize("words, number", [("failures --queue tasks", 0), ("dead drop --all --queue tasks", 0),
                                           ("dead drop --all --queue tasks", 1), ("pause tasks", 0), ("pause tasks", 1)])
def test_a_queue_that_only_the_database_knows_takes_rights_of_its_own(db, work, somebody, words, number):
    command = re.match(r"(dead )?\w+", words)[0]
    grant(db, somebody, NEEDS[command] + NEEDS[OTHERS] + [("select, delete", "outbox.events")])
    assert work(words).returncode == 0
    right, thing = NEEDS[OTHERS][number]
    db.query(f"revoke {right} on {thing} from {somebody}")
    done = work(words)
    assert done.returncode == 77 and done.stdout == ""
    assert mend(db, done.stderr, somebody) == f"{right.upper()} on {thing}"
    assert work(words).returncode == 0


def test_what_is_listed_for_run_is_enough_for_all_that_it_does(db, relay, http, somebody):
    """Deliveries, retries, keys that stay closed, dead letters, and the archive with its partitions."""
    grant(db, somebody, NEEDS["run"] + NEEDS[ARCHIVED])
    db.query("drop table " + db.value("select string_agg(inhrelid::regclass::text, ',') from pg_inherits"
                                      " where inhparent = 'outbox.archive'::regclass and inhrelid <> 'outbox.archive_default'::regclass"))
    http.rule(lambda request: request.headers["event-key"] == "2", Reply(500), times=2)
    http.rule(lambda request: request.headers["event-key"] == "3", Reply(422))
    db.query("insert into shop.events select n, n % 4 from generate_series(1, 40) n")
    one = relay(CONFIG.format(dsn=db.server.dsn(db.name, somebody), url=http.url, after="archive"))
    wait_until(lambda: db.value("select not exists (select from shop.events) and not exists (select from outbox.parked)"), 60,
               "everything to be settled")
    assert one.stop() == 0
    assert db.value("select count(*) from outbox.dead") == 10 and db.value("select count(*) from outbox.archive") == 30
    assert one.logged("delivery.retry") and not one.logged("denied|level=error")


def findings(work):
    lines = work("check-config --database", after="archive").stdout.splitlines()
    return [line for line in lines if line.startswith("orders: ") and "fsync" not in line and "synchronous_commit" not in line]


@pytest.mark.parametrize("number", range(len(NEEDS[ARCHIVED])))
def test_an_archive_takes_rights_of_its_own(db, work, somebody, number):
    """Without partitions of its days it goes on, into the default one: that right is a warning."""
    grant(db, somebody, NEEDS["run"] + NEEDS[ARCHIVED] + [
        ("execute", f"function outbox.{note}") for note in ("note_served(text, regclass, integer, text, jsonb)", "note_serving(text, oid, integer, text, boolean)")])
    right, thing = NEEDS[ARCHIVED][number]
    assert findings(work) == []
    db.query(f"revoke {right} on {thing} from {somebody}")
    (line,) = findings(work)
    level = "warning" if right == "execute" else "error"
    assert line == f"orders: {level}: {somebody} has no {right.upper()} on {thing}  fix: grant outbox_relay to {somebody};"
    db.query(line.split("  fix: ")[1])
    assert findings(work) == []


def test_a_group_that_lacks_a_right_is_told_from_one_that_was_not_granted(db, work, somebody):
    db.query(f"grant outbox_relay to {somebody}; select outbox.grant_relay('shop.events'); revoke update on outbox.parked from outbox_relay")
    done = work("run")
    assert done.returncode == 77 and done.stderr.endswith(f"has no UPDATE on outbox.parked  fix: grant update on outbox.parked to {somebody};\n")
    db.query(done.stderr.split("  fix: ")[1])
    assert work("run").returncode == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_lacks_everything_says_so_in_one_line(work, command):
    done = work(command)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("pgcourier: ")]
    assert done.returncode == 77 and done.stdout == ""
    assert "has no USAGE on schema outbox" in line and "  fix: grant outbox_" in line


def test_migrate_needs_to_create_schemas_the_first_time_and_to_own_the_schema_later(empty_db):
    role = empty_db.owner_dsn.split("user=")[1]
    assert NEEDS["migrate"] == [("create", "database shop")]
    empty_db.query(f'revoke create on database "{empty_db.name}" from {role}')
    done = run_command("migrate", "-d", empty_db.owner_dsn)
    assert done.returncode == 77 and done.stderr.count("\n") == 1
    assert done.stderr.endswith(f"{role} has no CREATE on database {empty_db.name}  fix: grant create on database {empty_db.name} to {role};\n")
    empty_db.query(done.stderr.split("  fix: ")[1])
    migrate(empty_db)
    done = run_command("migrate", "-d", empty_db.producer_dsn)
    other = empty_db.producer_dsn.split("user=")[1]
    assert done.returncode == 77
    assert done.stderr == (f"pgcourier: the schema outbox belongs to {role}, and what is in it would run with the rights of {other};"
                           f" migrate as {role}, or drop it if it is not pgcourier's\n")


def test_bench_needs_to_create_a_schema_and_no_more(empty_db, somebody_new):
    role = somebody_new
    assert NEEDS["bench"] == [("create", "database shop")]
    arguments = ["bench", "-d", empty_db.server.dsn(empty_db.name, role), "--events", "100", "--pairs", "1", "--rate", "0"]
    done = run_command(*arguments)
    assert done.returncode == 77 and done.stdout == "" and done.stderr.count("\n") == 1
    assert done.stderr.endswith(f"{role} has no CREATE on database {empty_db.name}  fix: grant create on database {empty_db.name} to {role};\n")
    empty_db.query(done.stderr.split("  fix: ")[1])
    done = run_command(*arguments)
    assert done.returncode == 0, done.stderr
