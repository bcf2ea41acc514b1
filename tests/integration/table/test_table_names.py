"""A table and its schema may be called anything: whatever is done with a queue finds the table of that very name. Where there
is a decoy, it has the name in small letters, which is what PostgreSQL makes of a name without quotes."""

import json
import os
import re

import pytest

from tests.support.postgres import OPERATOR_ROLE, OWNER_ROLE, RELAY_ROLE, REPLAY_ROLE
from tests.support.process import REPO
from tests.support.servers import Reply, run_command, wait_until
from tests.support.workers import Worker, owner

# What a configuration can write; SQL can write the rest, too.
WRITABLE = [("public", "Events"), ("My", "events"), ("My", "Events"), ("select", "User"), ("Bücher", "Ä$1\\\\:id%s")]
DECOY = ("My", "Orders")
WRITABLE.append(DECOY)
ANY = [*WRITABLE, ("a b", "c d"), ("a.b", "c.d"), ('"', 'say "Hi"'), ("it's", "'"), ("\\\\", "$x$"), ("%", "%1$s"), ("--", "/*")]

CONFIG = """
database: "{dsn}"
sinks: {{ web: {{ type: http, url: "{url}" }}, none: {{ type: discard }} }}
queues:
  first:
    table: '{table}'
    columns: {{ id: Id, key: Key, payload: Body, created_at: At }}
    sink: web
    retry: {{ base: 1ms, max: 1ms, attempts: 2, on_exhausted: {exhausted} }}
    {rest}
  second: {{ table: '{next}', columns: {{ id: Id, key: Key, payload: Body }}, sink: none }}
"""
TABLE = """create table {name} ("Id" bigserial primary key, "Key" text, "Body" jsonb, "At" timestamptz not null default now());
create index on {name} ("Key", "Id");"""
WAYS = ["after: archive", "after: delete, then: second", "after: archive, then: second", "ordering: unordered",
        "ordering: unordered, locks: advisory, then: second", "ordering: lease, after: archive, then: second", "after: archive, on_exhausted: park"]


def quoted(*names):
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


class Tables:
    """The queue's table, the next one's, and what is not theirs."""

    def __init__(self, db, schema, table):
        self.db, self.parts, self.plain, self.next = db, [schema, table], f"{schema}.{table}", f"{schema}.{table}_2"
        self.schema_sql = quoted(schema)
        self.sql, self.next_sql = quoted(schema, table), quoted(schema, table + "_2")
        self.decoy = quoted(schema.lower(), table.lower()) if (schema, table) == DECOY else None
        schemas = [quoted(name) for name in {schema, *([schema.lower()] if self.decoy else [])} - {"public"}]
        db.query("".join(f"create schema {name}; grant usage on schema {name} to public;" for name in schemas)
                 + TABLE.format(name=self.sql) + TABLE.format(name=self.next_sql))
        if self.decoy:
            db.query(TABLE.format(name=self.decoy) + f"""insert into {self.decoy} ("Id", "Key") select n, 'decoy' from generate_series(1, 9) n;
                                                         grant select, delete on {self.decoy} to {RELAY_ROLE}""")
        db.query("select outbox.grant_relay(%s), outbox.grant_relay(%s)", [self.sql, self.next_sql])
        db.query(f"grant insert on {self.sql} to {OPERATOR_ROLE}; grant insert on {self.next_sql} to {RELAY_ROLE};"
                 f'grant update ("Id") on {self.sql}, {self.next_sql} to {RELAY_ROLE};'
                 f"grant usage on all sequences in schema {self.schema_sql} to {RELAY_ROLE}")

    def add(self, *keys):
        for key in keys:
            self.db.query(f"""insert into {self.sql} ("Key", "Body") values (nullif('{key}', 'None'), '{{}}')""")

    def left(self):
        return [row[0] for row in self.db.query(f'select "Id" from {self.sql} order by 1')]

    def config(self, tmp_path, url="http://127.0.0.1:1", rest="after: delete", dsn=None):
        path = tmp_path / "pgcourier.yaml"
        written = (name.replace("$", "$$").replace("'", "''") for name in (self.plain, self.next))
        exhausted = "park" if "park" in rest else "dead_letter"
        rest = rest.removesuffix(", on_exhausted: park").replace(", ", "\n    ")
        path.write_text(CONFIG.format(dsn=dsn or self.db.dsn, url=url, exhausted=exhausted, rest=rest, table=next(written), next=next(written)))
        return str(path)

    def check_decoy(self):
        assert self.decoy is None or self.db.value(f"select count(*) from {self.decoy}") == 9


@pytest.fixture(params=WRITABLE, ids=".".join)
def tables(request, db):
    made = Tables(db, *request.param)
    yield made
    made.check_decoy()


@pytest.fixture(params=ANY, ids=".".join)
def any_tables(request, db):
    made = Tables(db, *request.param)
    yield made
    made.check_decoy()


def done(*arguments, code=0):
    ended = run_command(*arguments)
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def refuses(key):
    """Refuses the events of this key, and those of another once."""
    failed = []

    def respond(request):
        if request.headers.get("event-key") == "slow" and not failed:
            failed.append(request)
            return Reply(500)
        return Reply(400 if request.headers.get("event-key") == key else 200)

    return respond


@pytest.mark.parametrize("way", WAYS)
def test_each_event_is_delivered_once_and_leaves_the_table(tables, http, tmp_path, way):
    http.respond = refuses("bad")
    tables.add("a", "a", "slow", "bad", "b", None)
    path = tables.config(tmp_path, http.url, way)
    assert " error " not in done("check-config", "-c", path, "--database")
    said = done("run", "-c", path, "--until-empty")
    assert "claim.failed" not in said and "settle.failed" not in said, said
    parked = "park" in way
    assert tables.left() == ([4] if parked else [])
    assert sorted(int(request.headers["event-id"]) for request in http.requests) == [1, 2, 3, 3, 4, 5, 6]
    assert tables.db.query("select event_id, source_table from outbox.dead") == ([] if parked else [(4, tables.plain)])
    assert tables.db.value("select count(*) from outbox.archive where queue = 'first'") == (5 if "archive" in way else 0)
    assert tables.db.value(f"select count(*) from {tables.next_sql}") == 0  # the next queue has delivered them
    if "then" in way:
        assert tables.db.value("select nextval(pg_get_serial_sequence(%s, 'Id'))", [tables.next_sql]) == 6


def test_dead_letters_come_back_to_it(tables, http, tmp_path):
    http.respond = refuses("bad")
    tables.add("bad", "bad")
    done("run", "-c", tables.config(tmp_path, http.url), "--until-empty")
    path = tables.config(tmp_path, dsn=tables.db.operator_dsn)
    assert "bad" in done("dead", "list", "-c", path)
    assert tables.plain in done("dead", "show", "--key", "bad", "-c", path)
    assert "retried 2 dead letters" in done("dead", "retry", "--all", "-c", path)
    assert tables.left() == [1, 2]
    http.respond = None
    done("run", "-c", tables.config(tmp_path, http.url), "--until-empty")
    assert tables.left() == []


def test_its_keys_are_paused_and_its_events_are_counted(tables, tmp_path):
    tables.add("a", "b", "b")
    path = tables.config(tmp_path, dsn=tables.db.operator_dsn)
    done("pause", "-c", path, "first", "--key", "a")
    queue = json.loads(done("status", "-c", path, "--json"))["queues"][0]
    assert (queue["table"], queue["waiting"]) == (tables.plain, 3)


def test_its_archived_events_are_sent_again(tables, http, tmp_path):
    tables.add("a", "b", "b")
    done("run", "-c", tables.config(tmp_path, http.url, "after: archive"), "--until-empty")
    http.requests.clear()
    path = tables.config(tmp_path, http.url, "after: archive", dsn=tables.db.dsn.replace(RELAY_ROLE, REPLAY_ROLE))
    done("replay", "-c", path, "--queue", "first", "--key", "b")
    assert [int(request.headers["event-id"]) for request in http.requests] == [2, 3]


def test_a_new_event_of_it_wakes_the_relay(tables, relay, http, tmp_path):
    """The triggers of producers have its name, too."""
    tables.db.query("select outbox.install_ordering(%s, 'Key', 'Id')", [tables.sql])
    with open(tables.config(tmp_path, http.url, "poll: { max: 1h }")) as file:
        running = relay(file.read())
    wait_until(lambda: tables.db.value("select exists (select from pg_locks where locktype = 'advisory'"
                                       " and classid::bigint = 4294967296 - 1818282541)"), what="the relay to rest")
    tables.add("a", "b")
    wait_until(lambda: tables.left() == [])
    assert running.stop() == 0 and len(http.requests) == 2
    tables.db.query("select outbox.uninstall_ordering(%s)", [tables.sql])


@pytest.mark.parametrize("more", ["", ", priority_column => 'Id', delayed => 'pass', not_before_column => 'At'", ", key_column => null"])
def test_workers_take_and_end_its_events(any_tables, more):
    db = any_tables.db
    db.query(f"grant select, insert, delete on {any_tables.sql}, {any_tables.next_sql} to {OWNER_ROLE};"
             f"grant usage on all sequences in schema {any_tables.schema_sql} to {OWNER_ROLE}")
    name, following = (db.value("select %s::regclass::oid::text", [text]) + "::oid" for text in (any_tables.sql, any_tables.next_sql))
    key = "" if "key_column" in more else ", key_column => 'Key'"
    owner(db, f"select outbox.queue_set('second', {following}, 'Id', key_column => 'Key', payload_column => 'Body')")
    owner(db, f"select outbox.queue_set('first', {name}, 'Id', payload_column => 'Body', max_attempts => 1, after => 'archive',"
              f" then_queue => 'second'{key}{more})")
    any_tables.add("a", "b", None)
    worker = Worker(db, "first")
    tokens = {event.id: event.token for event in worker.take(10)}
    assert sorted(tokens) == [1, 2, 3]
    assert worker.done(tokens[1]) and worker.fail(tokens[2]) and worker.done(tokens[3])
    worker.close()
    assert any_tables.left() == []
    assert db.query("select event_id, source_table from outbox.dead") == [(2, any_tables.plain)]
    assert db.value("select count(*) from outbox.archive") == 2 and db.value(f"select count(*) from {any_tables.next_sql}") == 2
    assert db.query("select count(*) from outbox.overview where queue = 'first'") == [(1,)]
    (again,) = db.query("select events from outbox.replay('first', ids => array[1])")
    assert again == (1,)


def test_its_quoted_name_is_read_as_itself(any_tables):
    """What relay/table/table_sql.c makes regclasses of is what table_find.sql answers."""
    db = any_tables.db
    with open(os.path.join(REPO, "sql", "table", "table_find.sql")) as file:
        db.query("create function public.found(text, text) returns table (oid oid, name_sql text, plain_name text, kind text, places boolean)"
                 f" language sql as $find$ {file.read()} $find$")
    ((oid, name_sql, plain_name),) = db.query("select oid, name_sql, plain_name from public.found(%s, %s)", any_tables.parts)
    assert plain_name == any_tables.plain
    assert db.value("select %s::regclass::oid", [name_sql]) == oid == db.value("select %s::regclass::oid", [any_tables.sql])
