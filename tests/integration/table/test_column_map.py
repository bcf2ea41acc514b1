"""Any table works through a column map, without being altered: every type of key and payload, several queues in one
process."""

import base64
import json
import os

import pytest

from tests.support.history import Event, Final, check

KEYS = {
    "bigint": ["7", "-9223372036854775808", "9223372036854775807"],
    "integer": ["7", "-2147483648", "0"],
    "smallint": ["7", "-32768", "0"],
    "text": ["a", "", "O'Brien \\ \"{,}\" é 𝄞", "NULL"],
    "varchar(40)": ["a", "b c"],
    "uuid": ["00000000-0000-0000-0000-000000000001", "ffffffff-ffff-ffff-ffff-ffffffffffff"],
}

PAYLOADS = {
    "json": '{"b":  1, "a": [1.10, null],\t"b": 2}',
    "jsonb": '{"a": [1.10, null], "b": 2}',
    "text": 'plain "text" \\ with\nlines and é',
    "bytea": b"\x00\xff\x01 bytes \n",
}

CONFIG = """
database: "{dsn}"
sinks: {{ log: {{ type: file, path: "{path}" }} }}
queues:
  orders:
    table: public.t
    columns: {{ {columns} }}
    max_events_per_key: 3
    sink: log
    {more}
"""


def drain(db, relay, tmp_path, columns, more=""):
    db.let_relay_in("public.t")
    path = os.path.join(str(tmp_path), "events.jsonl")
    running = relay(CONFIG.format(dsn=db.dsn, path=path, columns=columns, more=more), until_empty=True)
    assert running.wait() == 0
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.mark.parametrize("indexed", [True, False], ids=["indexed", "without-index"])
@pytest.mark.parametrize("key_type", list(KEYS))
def test_each_key_is_delivered_in_id_order(db, relay, tmp_path, key_type, indexed):
    db.query(f"create table public.t (id bigserial primary key, k {key_type})")
    if indexed:
        db.query("create index on public.t (k, id)")
    keys = [*KEYS[key_type], None]
    for _ in range(8):
        for key in keys:
            db.query("insert into public.t (k) values (%s)", (key,))
    lines = drain(db, relay, tmp_path, "key: k")
    assert sorted(line["id"] for line in lines) == list(range(1, 8 * len(keys) + 1))
    for key in KEYS[key_type]:
        ids = [line["id"] for line in lines if line["key"] == key]
        assert len(ids) == 8 and ids == sorted(ids)
    assert sum(line["key"] is None for line in lines) == 8


@pytest.mark.parametrize("payload_type", list(PAYLOADS))
def test_each_type_of_payload_arrives_byte_for_byte(db, relay, tmp_path, payload_type):
    value = PAYLOADS[payload_type]
    db.query(f"create table public.t (id bigserial primary key, p {payload_type})")
    db.query("insert into public.t (p) values (%s), (null)", (value,))
    first, second = sorted(drain(db, relay, tmp_path, "payload: p"), key=lambda line: line["id"])
    if payload_type == "bytea":
        assert base64.b64decode(first["payload_base64"]) == value
    elif payload_type == "text":
        assert first["payload"] == value
    else:
        with open(os.path.join(str(tmp_path), "events.jsonl"), encoding="utf-8") as file:
            assert f'"payload":{value}' in file.read()
    assert second["payload"] is None


def test_without_a_payload_column_the_payload_is_the_row(db, relay, tmp_path):
    db.query("create table public.t (id bigserial primary key, order_id bigint, status text, price numeric)")
    db.query("insert into public.t (order_id, status, price) values (7, 'paid', 12345678901234567890.10)")
    [line] = drain(db, relay, tmp_path, "key: order_id, type: status")
    assert line["type"] == "paid"
    assert line["payload"] == {"id": 1, "order_id": 7, "status": "paid", "price": 12345678901234567890.10}


def test_a_destination_may_name_any_column(db, relay, tmp_path):
    db.query('create table public.t (id bigserial primary key, "Region" text, status text)')
    db.query("insert into public.t (\"Region\", status) values ('eu', 'paid'), ('us', 'sent')")
    lines = drain(db, relay, tmp_path, "type: status", 'destination: "{{x}}.{Region}.{type}.{id}.{Region}"')
    assert sorted(line["destination"] for line in lines) == ["{x}.eu.paid.1.eu", "{x}.us.sent.2.us"]


def test_where_leaves_the_other_rows_alone(db, relay, tmp_path):
    db.query("create table public.t (id bigserial primary key, k int, ready boolean)")
    db.query("insert into public.t (k, ready) select i % 3, i % 2 = 0 from generate_series(1, 20) i")
    lines = drain(db, relay, tmp_path, "key: k", "where: ready")
    assert sorted(line["id"] for line in lines) == list(range(2, 21, 2))
    assert db.value("select count(*) from public.t") == 10


def test_a_column_may_have_any_name(db, relay, tmp_path):
    for name in ("e", "k", "p", "s", "d", "h", "name", "key", "attempts", "payload"):
        db.query(f"create table public.t (id bigserial primary key, {name} text)")
        db.query(f"insert into public.t ({name}) values ('a'), ('a'), (null), ('dies'), ('a')")
        lines = drain(db, relay, tmp_path, f"key: {name}, type: {name}",
                      f'after: archive\n    destination: "{{type}}"\n    where: "{name} is distinct from \'b\'"')
        events = [Event(number, key, doomed=key is None) for number, key in enumerate(["a", "a", None, "dies", "a"], 1)]
        check(events, [(line["id"], line["key"]) for line in lines], final=Final(dead=[3], archived=[1, 2, 4, 5])).require()
        assert db.value("select count(*) from public.t") == 0
        assert db.value(f"select original->>'{name}' from outbox.archive where event_id = 1") == "a"
        assert db.value(f"select original->>'{name}' is null from outbox.dead where event_id = 3"), "without a type no destination"
        os.remove(os.path.join(str(tmp_path), "events.jsonl"))
        db.query("drop table public.t; truncate outbox.archive, outbox.dead")


@pytest.mark.parametrize("where, ids", [
    ("s = 'x:y''z'::text and s <> ':table' and (id::bigint)::int > 0", [1]),
    ("e.s = 'q' or s is null", [2, 3]),
    ("s::public.mood = 'q'::public.mood", [2]),
    ("exists (select from public.chosen c where c.id = e.id)", [3]),
], ids=["quotes", "alias", "own-types", "other-tables"])
def test_a_where_is_any_condition(db, relay, tmp_path, where, ids):
    db.query("create type public.mood as enum ('q'); create table public.chosen (id bigint); insert into public.chosen values (3);"
             "grant select on public.chosen to outbox_relay;"
             "create table public.t (id bigserial primary key, k text, s text);"
             "insert into public.t (k, s) values ('a', 'x:y''z'), ('a', 'q'), ('a', null)")
    if "mood" in where:
        db.query("delete from public.t where id <> 2")
    lines = drain(db, relay, tmp_path, "key: k", f'where: "{where}"')
    assert [line["id"] for line in lines] == ids


def test_triggers_of_the_table_find_what_they_name(db, relay, tmp_path):
    db.query("create table public.t (id bigserial primary key, k text); create table public.audit (k text);"
             "insert into public.t (k) values ('a'), ('b');"
             "create function public.note() returns trigger language plpgsql"
             " set search_path = public, pg_temp as 'begin insert into audit values (old.k); return null; end';"
             "create trigger note after delete on public.t for each row execute function public.note()")
    db.query("grant insert on public.audit to outbox_relay")
    assert len(drain(db, relay, tmp_path, "key: k")) == 2
    assert db.query("select k from public.audit order by k") == [("a",), ("b",)]


def test_domains_over_domains_count_as_their_base_type(db, relay, tmp_path):
    db.query("create domain public.number as bigint; create domain public.positive as public.number check (value > 0);"
             "create domain public.body as jsonb; create domain public.text_body as public.body;"
             "create table public.t (id public.positive primary key, k public.positive, p public.text_body);"
             "insert into public.t values (1, 7, '{}'), (2, 7, null)")
    lines = drain(db, relay, tmp_path, "key: k, payload: p")
    assert [(line["key"], line["payload"]) for line in lines] == [("7", {}), ("7", None)]


def test_headers_in_a_text_column_may_hold_anything(db, relay, tmp_path):
    db.query("create table public.t (id bigserial primary key, h text); insert into public.t (h) values ('{\"a\":1}'), ('a, b'), ('')")
    lines = drain(db, relay, tmp_path, "headers: h")
    assert {line["id"]: line["headers"] for line in lines} == {1: {"a": 1}, 2: "a, b", 3: ""}


def test_the_last_instant_of_postgresql_is_no_reason_to_stop(db, relay, tmp_path):
    db.query("create table public.t (id bigserial primary key, at timestamptz);"
             "insert into public.t (at) values ('294276-12-31 23:59:59+00'), ('infinity'), ('2026-01-02 03:04:05+00')")
    lines = drain(db, relay, tmp_path, "created_at: at")
    assert {line["id"]: line["created_at"] for line in lines} == {1: None, 2: None, 3: "2026-01-02T03:04:05.000000Z"}


def test_several_queues_share_one_process_and_one_sink(db, relay, tmp_path):
    path = os.path.join(str(tmp_path), "events.jsonl")
    for name in ("a", "b"):
        db.query(f"create table public.{name} (id bigserial primary key, k text)")
        db.query(f"insert into public.{name} (k) select 'k' || i % 10 from generate_series(1, 200) i")
    db.let_relay_in("public.a", "public.b")
    queues = "".join(f'\n  {name}: {{ table: public.{name}, columns: {{ key: k }}, sink: log, destination: {name},'
                     f' after: archive }}' for name in ("a", "b"))
    config = f'database: "{db.dsn}"\nsinks: {{ log: {{ type: file, path: "{path}" }} }}\nqueues:{queues}\n'
    assert relay(config, until_empty=True).wait() == 0
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    assert len(lines) == 400
    for name in ("a", "b"):
        for key in range(10):
            ids = [line["id"] for line in lines if line["destination"] == name and line["key"] == f"k{key}"]
            assert len(ids) == 20 and ids == sorted(ids)
        assert db.value("select count(*) from outbox.archive where queue = %s", (name,)) == 200
