"""Replays of queues over tables of all kinds: what arrives the second time is what arrived the first time, and a header."""

import json

import pytest

from tests.support.servers import Reply, run_command, wait_until

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


EVERY = """
database: "{dsn}"
sinks: {{ hook: {{ type: http, url: "{url}", content_type: text/plain }} }}
queues:
  orders:
    table: public.orders
    columns: {{ key: k, payload: body, not_before: due, after: comes_after }}
    where: "body <> 'never'"
    ordering: lease
    lease: {{ duration: 1h, owner: backend }}
    sink: hook
    destination: "{{k}}"
    delayed: pass
    window: "{window}"
    window_zone: Europe/Berlin
    after: archive
    archive_retention: 1d
    dead_retention: 1d
    then: next
    then_payload: response
    retry: {{ base: 1ms, max: 1ms, attempts: 1, on_exhausted: dead_letter }}
    connections: 3
    keys_per_claim: 2
    max_events_per_key: 1
    max_event_bytes: 10
    oldest_share: 0
  next: {{ table: outbox.events, columns: {{ payload: payload }}, sink: hook }}
"""


@pytest.fixture
def every(db, http, tmp_path):
    """A queue with every setting that is about its table, its time or its end; every(arguments) -> what a replay of it said."""
    db.query("create table public.orders (id bigserial primary key, k text, body text, due timestamptz, comes_after bigint);"
             " create index on public.orders (k, id); create index on public.orders (due)")
    db.query("insert into outbox.archive (queue, event_id, key, original, archived_at) select 'orders', n, 'k' || n % 2, json_build_object('id', n, 'k',"
             " 'k' || n % 2, 'body', case n when 4 then 'never' else 'it' end, 'due', timestamptz '2200-01-01', 'comes_after', n - 1), now() - interval '1 h'"
             " from generate_series(1, 6) n")
    clock = "to_char(now() at time zone 'Europe/Berlin' + {} * interval '1 min', 'HH24:MI')"
    closed = db.value(f"select {clock.format(300)} || '-' || {clock.format(600)}")

    def run(*arguments):
        path = tmp_path / "pgcourier.yaml"
        path.write_text(EVERY.format(dsn=db.replay_dsn, url=http.url, window=closed))
        return run_command("replay", "-c", str(path), *arguments)

    return run


def test_no_setting_about_the_queues_table_or_its_end_holds_for_a_replay(db, every, http):
    done = every("--queue", "orders", "--since", "2001-01-01")
    assert done.returncode == 0 and done.stdout.endswith("all 6 events sent\n"), done
    sent = [(int(request.headers["event-id"]), request.target) for request in http.requests]
    assert sorted(sent) == [(n, f"/k{n % 2}") for n in range(1, 7)]
    assert [n for n, _ in sent if n % 2] == [1, 3, 5] and [n for n, _ in sent if n % 2 == 0] == [2, 4, 6]
    assert [db.value(f"select count(*) from outbox.{table}") for table in ("archive", "dead", "parked", "events")] == [6, 0, 0, 0]


def test_what_came_after_a_failed_event_does_not_wait_for_it_in_a_replay(db, every, http):
    http.rule(lambda request: request.headers["event-id"] == "1", Reply(422))
    done = every("--queue", "orders", "--since", "2001-01-01")
    assert done.returncode == 75 and "3 of 6 events are left, behind 1 key closed by failures" in done.stderr, done
    assert [int(request.headers["event-id"]) for request in http.requests if request.headers["event-key"] == "k0"] == [2, 4, 6]
    assert db.value("select count(*) from outbox.dead") == 0
