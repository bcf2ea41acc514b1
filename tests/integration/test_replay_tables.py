"""Replays of queues over tables of all kinds: what arrives the second time is what arrived the first time, and a header."""

import json

import pytest

from tests.support.servers import run_command, wait_until

MARK = "pgcourier-replayed"
CONFIG = """
database: "{dsn}"
sinks: {{ out: {{ {sink} }} }}
queues:
  orders: {{ table: public.orders, columns: {{ {columns} }}, sink: out, after: archive{more} }}
"""


@pytest.fixture
def twice(db, tmp_path):
    """twice(sink, columns, more, arguments) -> what the run and the replay of all of it said."""

    def run(sink, columns, more="", arguments=()):
        db.let_relay_in("public.orders")
        path = tmp_path / "pgcourier.yaml"
        done = []
        for dsn, command in ((db.dsn, ["run", "--until-empty"]), (db.replay_dsn, ["replay", "--queue", "orders", "--since", "2001-01-01", *arguments])):
            path.write_text(CONFIG.format(dsn=dsn, sink=sink, columns=columns, more=more))
            done.append(run_command(*command, "-c", str(path)))
            assert done[-1].returncode == 0, done[-1]
        return done

    return run


def lines_of(path, count):
    """Those of the run, and those of the replay without the mark, which each of them has."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines[count:]:
        assert line["headers"].pop(MARK) == "1"
        line["headers"] = line["headers"] or None
    return lines[:count], lines[count:]


TABLES = {
    "text and jsonb": ("k text, body jsonb", "('a', '{\"b\": [1, 2.50, null]}')", "key: k, payload: body"),
    "json, to the letter": ("k text, body json", "('a', '{\"b\" :  1, \"b\": 2.500 }')", "key: k, payload: body"),
    "text": ("k text, body text", "('a', e'tab\\t \"quoted\" \\u00e9\\\\'), (null, ''), ('b', null)", "key: k, payload: body"),
    "bytea": ("k uuid, body bytea", "('8ba1c5c4-5b0c-4e6a-8a9c-0a2f0c2d7e11', '\\x00ff10'), (null, '')", "key: k, payload: body"),
    "the row as JSON": ("k bigint, day date, amount numeric(10,2), tags text[]", "(7, '2026-01-31', 1.50, '{a,\"b c\"}')", "key: k"),
    "names that need quotes": ('"Key" bigint, "the ""body""" text', "(7, 'x')", 'key: Key, payload: \'the "body"\''),
    "types of one's own": ("k public.customer, kind public.kind, body public.pair", "(7, 'paid', row(1, 'x')), (8, 'sent', null)",
                           "key: k, type: kind"),
    "times and ids of the application": ("k int, event uuid, at timestamptz, trace text, body jsonb",
                                         "(7, '8ba1c5c4-5b0c-4e6a-8a9c-0a2f0c2d7e11', '2026-01-02 03:04:05.678901+00', '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', '1')",
                                         "key: k, payload: body, event_id: event, created_at: at, traceparent: trace"),
    "headers as text": ("k int, h text, body text", "(7, ' { \"x\": \"y\" }', 'a'), (8, '{ }', 'b'), (9, null, 'c')", "key: k, payload: body, headers: h"),
    "no key": ("body text", "('a'), ('b')", "payload: body"),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("more", ["", ", ordering: unordered, locks: advisory"], ids=["ordered", "unordered"])
def test_what_arrives_again_is_what_arrived(db, twice, tmp_path, name, more):
    columns, rows, mapped = TABLES[name]
    db.query("create domain public.customer as bigint check (value > 0); create type public.kind as enum ('paid', 'sent');"
             "create type public.pair as (a int, b text)")
    db.query(f"create table public.orders (id bigserial primary key, {columns}); insert into public.orders ({names(columns)}) values {rows}")
    count = db.value("select count(*) from public.orders")
    path = tmp_path / "events.jsonl"
    twice(f"type: file, path: {path}", mapped, more)
    first, again = lines_of(path, count)
    assert len(first) == count
    for line in first:
        line["headers"] = line["headers"] or None
    assert sorted(again, key=lambda line: line["id"]) == sorted(first, key=lambda line: line["id"])
    if name == "json, to the letter":
        assert path.read_text().count('{"b" :  1, "b": 2.500 }') == 2


def names(columns):
    """Those of a list of columns with types."""
    return ", ".join(column.rsplit(" ", 1)[0] if column.startswith('"') else column.split(" ")[0]
                     for column in columns.replace("numeric(10,2)", "numeric").split(", "))


def test_a_destination_may_name_any_column(db, twice, tmp_path):
    db.query("create type public.region as enum ('eu', 'us'); create table public.orders (id serial primary key, k text, region public.region);"
             "insert into public.orders (k, region) values ('a', 'eu'), ('b', 'us')")
    path = tmp_path / "events.jsonl"
    twice(f"type: file, path: {path}", "key: k", ', destination: "{region}-{k}"')
    twice(f"type: file, path: {path}", "key: k", ', destination: "{region}-{k}"', ["--destination", "again-{region}"])
    lines = [json.loads(line)["destination"] for line in path.read_text().splitlines()]
    assert sorted(lines) == ["again-eu", "again-us", "eu-a", "eu-a", "us-b", "us-b"]


def test_the_mark_is_in_a_streams_field(db, twice, redis):
    db.query("create table public.orders (id bigserial primary key, k text, body text); insert into public.orders (k, body) values ('a', 'x')")
    twice(f'type: redis, url: "{redis.url}", command: stream', "key: k, payload: body", ", destination: orders")
    with redis.client() as client:
        (_, first), (_, again) = client.xrange("orders")
    assert json.loads(again.pop(b"headers")) == {MARK: "1"} and again == first


def test_the_mark_is_a_records_header(db, twice, kafka, topic):
    db.query("create table public.orders (id bigserial primary key, k text, body text); insert into public.orders (k, body) values ('a', 'x')")
    twice(f'type: kafka, properties: {{ bootstrap.servers: "{kafka.bootstrap}" }}', "key: k, payload: body", f", destination: {topic}")
    first, again = kafka.consume(topic)
    assert (first.key, first.value, first.partition) == (again.key, again.value, again.partition)
    assert dict(again.headers) == {**dict(first.headers), MARK: "1"}


def test_of_a_table_that_refuses_to_be_written_to(db, twice, tmp_path):
    """Nothing is inserted into it."""
    db.query("create table public.orders (id bigserial primary key, k text unique, body text not null check (body <> 'never')); "
             "insert into public.orders (k, body) values ('a', 'x'); "
             "create function public.no() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$; "
             "create trigger no before insert on public.orders execute function public.no(); create rule no as on insert to public.orders do instead nothing")
    path = tmp_path / "events.jsonl"
    twice(f"type: file, path: {path}", "key: k, payload: body")
    assert len(path.read_text().splitlines()) == 2
    wait_until(lambda: db.value("select count(*) from outbox.archive") == 1)
