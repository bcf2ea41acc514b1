"""Rows that try to break something: they arrive byte for byte, or are dead-lettered with a reason."""

import base64
import json
from urllib.parse import unquote

import pytest

from tests.conftest import migrate
from tests.support import servers
from tests.support.history import Event, Final, check
from tests.support.journal import digest, read_lines
from tests.support.relay import binary
from tests.support.servers import wait_until
from tests.support.targets import FileTarget, HttpTarget

MEGABYTE = 1 << 20

CONFIG = """\
database: "{dsn}"
sinks:
  out: {sink}
queues:
  rows:
    table: public.rows
    columns: {{ id: id, key: key, type: type, payload: payload, headers: headers }}
    sink: out
{queue}
"""


class Rows:
    """A table whose payload has the given type, and a relay that empties it."""

    def __init__(self, db, start, payload_type):
        self.db, self.start = db, start
        db.query(f"create table public.rows (id bigint primary key, key text, type text, payload {payload_type}, headers jsonb)")
        db.query("create index on public.rows (key, id)")
        db.let_relay_in("public.rows")
        self.count = 0
        self.journal = []

    def put(self, payload, key="k", event_id=None, headers=None, sql="%s"):
        """`sql` says how the parameter becomes a payload."""
        self.count += 1
        event_id = self.count if event_id is None else event_id
        self.db.query(f"insert into public.rows values (%s, %s, 'type', {sql}, %s)", (event_id, key, payload, headers))
        self.note(event_id, key, payload)

    def note(self, event_id, key, payload):
        self.journal.append(Event(event_id, key, hash=digest(payload.encode() if isinstance(payload, str) else payload)))

    def drain(self, sink, program=None, **queue):
        lines = "\n".join(f"    {name}: {value}" for name, value in queue.items())
        one = self.start(CONFIG.format(dsn=self.db.dsn, sink=sink, queue=lines), until_empty=True, program=program)
        wait_until(lambda: one.rss_peak() and one.exit_code is not None, 60, "the relay to end")
        assert one.exit_code == 0, one.log
        assert self.db.value("select count(*) from public.rows") == 0
        return one

    def drain_to_file(self, path, **options):
        """The lines, by id."""
        self.drain(f'{{ type: file, path: "{path}", sync: no }}', **options)
        return {line["id"]: line for line in read_lines(path)}

    def dead(self):
        return self.db.query("select event_id, reason from outbox.dead order by event_id")

    def check(self, receipts, doomed=()):
        """The history check on all that was put in; no sink can take the doomed."""
        journal = [event._replace(doomed=event.id in doomed) for event in self.journal]
        check(journal, receipts, final=Final(dead=[event_id for event_id, _ in self.dead()])).require()


@pytest.fixture
def rows(relay, db):
    return lambda payload_type: Rows(db, relay, payload_type)


BYTES = [b"", b"\0", b"a\0b\0", bytes(range(256)), b"\xff\xfe\xfd", "\u2028\u2029\ud7ff\U0001f600".encode(), b"\r\n\r\n", b'"\\',
         b"\0" * 70000]
TEXTS = ["", "\r\nX-Injected: 1\r\n\r\n", "\x01\x1f\x7f", '"\\/\b\f', "\u2028\ufeff\U0001f600", "e\u0301", "' ; drop table rows; --", "%s%n{id}",
         "x" * 300000]
KEYS = ["", " ", "k\r\nX-Injected: 1", "{key}", "\u00fc\u4e2d\U0001f600", "a,b\"c\\d'e{}", "NULL", "null", "x" * 2000, "\t", "../../etc", "a/b?c#d%20"]


def payload_bytes(line):
    if "payload_base64" in line:
        return base64.b64decode(line["payload_base64"])
    return None if line["payload"] is None else line["payload"].encode()


def test_bytea_arrives_byte_for_byte_in_a_file(rows, tmp_path):
    table = rows("bytea")
    for payload in BYTES:
        table.put(payload)
    table.put(None)
    lines = table.drain_to_file(tmp_path / "out")
    assert [payload_bytes(lines[n + 1]) for n in range(len(BYTES) + 1)] == [*BYTES, None]
    table.check(FileTarget(tmp_path / "out").receipts())


def test_text_arrives_byte_for_byte_in_a_file(rows, tmp_path):
    table = rows("text")
    for payload in TEXTS:
        table.put(payload)
    lines = table.drain_to_file(tmp_path / "out")
    assert [lines[n + 1]["payload"] for n in range(len(TEXTS))] == TEXTS


def test_bytea_arrives_byte_for_byte_in_redis(rows, redis):
    table = rows("bytea")
    for payload in BYTES:
        table.put(payload)
    table.drain(f'{{ type: redis, url: "{redis.url}" }}', destination="rows")
    with redis.client() as client:
        arrived = {int(fields[b"id"]): fields[b"payload"] for _, fields in client.xrange("rows")}
    assert [arrived[n + 1] for n in range(len(BYTES))] == BYTES


def test_bytea_arrives_byte_for_byte_over_http(rows, http):
    table = rows("bytea")
    for payload in BYTES:
        table.put(payload)
    table.drain(f'{{ type: http, url: "{http.url}" }}')
    assert [request.body for request in http.requests] == BYTES
    table.check(HttpTarget(http).receipts())


def test_bytea_arrives_byte_for_byte_in_kafka(rows, kafka, topic):
    table = rows("bytea")
    for payload in BYTES:
        table.put(payload)
    table.put(None)
    table.drain(f'{{ type: kafka, properties: {{ bootstrap.servers: "{kafka.bootstrap}" }} }}', destination=topic)
    assert [record.value for record in kafka.consume(topic)] == [*BYTES, None]


def test_every_key_arrives_in_a_file(rows, tmp_path):
    table = rows("text")
    for key in KEYS:
        table.put("x", key=key)
        table.put("y", key=key)
    table.put("x", key=None)
    lines = table.drain_to_file(tmp_path / "out")
    assert [lines[2 * n + 1]["key"] for n in range(len(KEYS))] == KEYS
    assert lines[2 * len(KEYS) + 1]["key"] is None


def test_every_key_arrives_in_redis(rows, redis):
    table = rows("text")
    for key in KEYS:
        table.put("x", key=key)
    table.drain(f'{{ type: redis, url: "{redis.url}" }}', destination="rows")
    with redis.client() as client:
        arrived = {int(fields[b"id"]): fields[b"key"].decode() for _, fields in client.xrange("rows")}
    assert [arrived[n + 1] for n in range(len(KEYS))] == KEYS


def test_every_key_arrives_in_kafka(rows, kafka, topic):
    table = rows("text")
    for key in KEYS:
        table.put("x", key=key)
    table.drain(f'{{ type: kafka, properties: {{ bootstrap.servers: "{kafka.bootstrap}" }} }}', destination=topic)
    assert sorted(record.key.decode() for record in kafka.consume(topic)) == sorted(KEYS)


def test_a_key_cannot_become_an_http_header(rows, http):
    table = rows("text")
    for key in KEYS:
        table.put("x", key=key)
    table.drain(f'{{ type: http, url: "{http.url}" }}')
    assert all("x-injected" not in request.headers for request in http.requests)
    assert sorted(unquote(request.headers["event-key"]) for request in http.requests) == sorted(KEYS)
    table.check([receipt._replace(key=unquote(receipt.key)) for receipt in HttpTarget(http).receipts()])


def test_a_header_cannot_bring_another_header_with_it(rows, http):
    """What a header's value may not hold is percent-encoded; a name that cannot be one is refused."""
    table = rows("text")
    values = ["plain", "a\r\nX-Injected: 1", "a\nb", "\u00fc", "\x01", "50%"]
    for value in values:
        table.put("x", key=value, headers=json.dumps({"X-Mine": value}))
    table.put("x", headers=json.dumps({"X-Mine: 1\r\nX-Injected": "1"}))
    table.drain(f'{{ type: http, url: "{http.url}" }}')
    assert all("x-injected" not in request.headers for request in http.requests)
    assert sorted(unquote(request.headers["x-mine"]) for request in http.requests) == sorted(values)
    assert table.dead() == [(7, "headers: the name of entry 1 cannot be an HTTP header's")]
    table.check([receipt._replace(key=unquote(receipt.key)) for receipt in HttpTarget(http).receipts()], doomed=[7])


def test_headers_with_line_ends_arrive_in_a_file(rows, tmp_path):
    table = rows("text")
    headers = {"a": "b\r\nc", "\r\n": "\u2028", "": "\u0001"}
    table.put("x", headers=json.dumps(headers))
    assert table.drain_to_file(tmp_path / "out")[1]["headers"] == headers


def test_the_smallest_and_the_largest_id_arrive_in_order(rows, tmp_path):
    table = rows("text")
    ids = [-2**63 + 1, -5, 0, 1, 2**63 - 2, 2**63 - 1]
    for event_id in reversed(ids):
        table.put("x", event_id=event_id)
    table.drain_to_file(tmp_path / "out")
    assert [line["id"] for line in read_lines(tmp_path / "out")] == ids
    table.check(FileTarget(tmp_path / "out").receipts())


def nested(depth):
    return "[" * depth + "]" * depth


def test_deep_json_arrives_byte_for_byte(rows, tmp_path, http):
    """As deep as PostgreSQL lets it in with a larger stack; nothing in the relay recurses over it."""
    table = rows("json")
    table.db.query(f"alter database {table.db.name} set max_stack_depth = '7MB'")
    deep = nested(6000)
    table.put(deep)
    table.drain(f'{{ type: file, path: "{tmp_path}/out", sync: no }}')
    assert f'"payload":{deep},' in (tmp_path / "out").read_text()


def test_json_that_is_as_deep_as_text_can_be_arrives(rows, tmp_path):
    """100,000 levels: only a text column takes that."""
    table = rows("text")
    table.put(nested(100000))
    assert table.drain_to_file(tmp_path / "out")[1]["payload"] == nested(100000)


def test_json_keeps_its_spelling(rows, tmp_path, http):
    table = rows("json")
    spellings = ['{"b":1,  "a":1e400, "b":2}', ' [1, 2 ]', '"\\u0000"', "null", "12345678901234567890.10", '"\\ud83d\\ude00"']
    for spelling in spellings:
        table.put(spelling)
    table.drain(f'{{ type: http, url: "{http.url}" }}')
    assert [request.body.decode() for request in http.requests] == spellings


@pytest.mark.parametrize("payload_type", ["bytea", "text", "json", "jsonb"])
def test_an_event_over_max_event_bytes_is_dead_lettered_with_its_size(rows, http, payload_type):
    table = rows(payload_type)
    for size in (1000, 1001, 1000):
        table.put(b"x" * size if payload_type == "bytea" else f'"{"x" * (size - 2)}"')
    table.drain(f'{{ type: http, url: "{http.url}" }}', max_event_bytes="1000")
    receipts = HttpTarget(http).receipts()
    assert [receipt.id for receipt in receipts] == [1, 3]
    (event_id, reason), = table.dead()
    assert event_id == 2 and "1001 bytes" in reason and "max_event_bytes" in reason
    table.check(receipts, doomed=[2])


@pytest.mark.parametrize("payload_type", [pytest.param("bytea", marks=pytest.mark.deep), "text"])
def test_a_row_of_100_megabytes_is_delivered_in_bounded_memory(relay, db, http, payload_type):
    """As it came, as libpq's row and as the batch's copy: three times its size for a moment. HTTP sends from the copy. With
    a second connection a row may come while the one before is not let go of: that is once more."""
    table = Rows(db, relay, payload_type)
    value = "convert_to(repeat('x', 104857600), 'UTF8')" if payload_type == "bytea" else "repeat('x', 104857600)"
    for event_id in (1, 3):
        db.query(f"insert into public.rows values (%s, 'k', 'type', {value}, null)", (event_id,))
        table.note(event_id, "k", b"x" * 104857600)
        table.put("small", event_id=event_id + 1)
    one = table.drain(f'{{ type: http, url: "{http.url}", timeout: 60s }}', program=binary(["release"]), connections=1)
    print(f"{one.peak_bytes / MEGABYTE:.0f} MB at most")
    assert [len(request.body) for request in http.requests] == [104857600, 5, 104857600, 5]
    assert one.peak_bytes < 350 * MEGABYTE
    table.check(HttpTarget(http).receipts())


def test_invalid_utf_8_of_a_sql_ascii_database_arrives_byte_for_byte(relay, tmp_path):
    with servers.Postgres(encoding="SQL_ASCII") as server:
        db = server.create_database()
        migrate(db)
        table = Rows(db, relay, "text")
        broken = b"\xff\xfe caf\xe9 \xc3"
        db.psql(f"insert into public.rows values (1, E'{escape(broken)}', E'{escape(broken)}', E'{escape(broken)}', null);"
                " insert into public.rows values (2, 'k', 'type', 'plain', null)")
        lines = table.drain_to_file(tmp_path / "out")
        for member in ("key", "type", "payload"):
            assert base64.b64decode(lines[1][f"{member}_base64"]) == broken
        assert lines[2]["payload"] == "plain"


def escape(data):
    return "".join(f"\\x{byte:02x}" for byte in data)
