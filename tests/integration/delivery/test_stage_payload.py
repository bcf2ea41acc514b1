"""then_payload: response: what a destination answers is the payload of the next queue's event, and what cannot be is a failure of
the event alone."""

import json
from pathlib import Path

import psycopg2
import pytest

from tests.support.history import Event, Final, Receipt, check
from tests.support.process import REPO
from tests.support.servers import Reply, run_command, wait_until

CONFIG = """
database: "{db}"
sinks:
  web: {{ type: http, url: "{url}", max_response: 200 }}
  job: {{ type: exec, command: [sh, -c, {command}], max_response: 200 }}
  none: {{ type: discard }}
queues:
  first: {{ table: public.first, columns: {{ key: k, payload: body }}, sink: {sink}, then: second, then_payload: response,
            retry: {{ base: 10ms, max: 20ms, attempts: 2 }}{first} }}
  second: {{ table: public.second, columns: {{ key: k, payload: body }}, sink: none }}
"""


@pytest.fixture
def stages(db, http, relay):
    def start(sink="web", body="jsonb", command="cat", first="", **options):
        db.psql(f"create table public.first (id bigserial primary key, k text, body jsonb); create index on public.first (k, id);"
                f"create table public.second (id bigserial primary key, k text, body {body}); create index on public.second (k, id);")
        db.let_relay_in("public.first", "public.second")
        db.let_hand_on("public.second")
        db.query("select outbox.pause('second', is_new => true)")
        return relay(CONFIG.format(db=db.dsn, url=http.url, sink=sink, command=json.dumps(command), first=first), **options)

    return start


def produce(db, count):
    db.query("insert into public.first (id, k, body) select n, 'k' || n %% 7, jsonb_build_object('of', n) from"
             " (select nextval('public.first_id_seq') as n from generate_series(1, %s)) e", [count])


def arrived(db, count):
    wait_until(lambda: db.value("select count(*) from public.second") == count, what=f"{count} events in the next table")


def numbered(request):
    return int(request.headers["event-id"])


def test_the_answer_to_a_request_is_the_next_payload_and_bad_ones_fail_alone(db, http, stages):
    """Good ones beside bad ones: what cannot be a payload keeps nobody else from going on, and ends as a dead letter."""
    bad = {3: b"<html>", 5: b'{"a": ', 8: b'{"long": "%s"}' % (b"x" * 300), 11: b'"\\u0000"', 13: b'"\xff"'}
    http.respond = lambda request: Reply(body=bad.get(numbered(request)) or b'{"answer": %d}' % numbered(request))
    one = stages()
    produce(db, 20)
    arrived(db, 15)
    wait_until(lambda: db.value("select count(*) from outbox.dead where queue = 'first'") == 5)
    assert one.stop() == 0
    good = sorted(set(range(1, 21)) - set(bad))
    assert sorted(row[0] for row in db.query("select (body ->> 'answer')::int from public.second")) == good
    reasons = dict(db.query("select event_id, reason from outbox.dead"))
    assert "the answer cannot be the payload of public.second: not JSON that jsonb takes: byte 1 of 6" in reasons[3]
    assert "byte 7 of 6" in reasons[5] and "byte 8 of 8" in reasons[11] and "not UTF-8" in reasons[13]
    assert "longer than max_response, which is 200 bytes" in reasons[8]
    assert all(len([r for r in http.requests if numbered(r) == n]) == 2 for n in bad)  # attempts


@pytest.mark.parametrize("after", ["delete", "archive"])
def test_answers_belong_to_their_events_though_relays_are_killed(db, http, stages, relay, after):
    http.respond = lambda request: Reply(body=b'{"of": %d}' % numbered(request), delay_s=0.05 if numbered(request) % 31 == 0 else 0)
    produced = 400
    one = stages(first=f", after: {after}, keys_per_claim: 4, max_events_per_key: 5")
    produce(db, produced)
    config = CONFIG.format(db=db.dsn, url=http.url, sink="web", command='"cat"', first=f", after: {after}, keys_per_claim: 4")
    for _ in range(3):
        seen = len(http.requests)
        wait_until(lambda: len(http.requests) > seen + 40)
        one.kill()
        one = relay(config)
    arrived(db, produced)
    assert one.stop() == 0
    assert db.value("select count(*) from outbox.archive where queue = 'first'") == (produced if after == "archive" else 0)
    receipts = [Receipt(of, key, "ack") for of, key in db.query("select (body ->> 'of')::bigint, k from public.second order by id")]
    check([Event(n, f"k{n % 7}") for n in range(1, produced + 1)], receipts, final=Final([])).require()


KINDS = {
    "jsonb": (b' {"b": 1, "a": 2}', '{"a": 2, "b": 1}'),
    "json": (b' {"b": 1, "a": 2}', ' {"b": 1, "a": 2}'),
    "text": ("naïve <b>".encode(), "naïve <b>"),
    "bytea": (b"\x00\xff\n", "\\x00ff0a"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_is_what_its_column_is(db, http, stages, kind):
    answer, stored = KINDS[kind]
    http.respond = lambda request: Reply(body=answer if numbered(request) == 1 else b"")
    one = stages(body=kind)
    produce(db, 2)
    arrived(db, 2)
    assert one.stop() == 0
    assert dict(db.query("select k, body::text from public.second")) == {"k1": stored, "k2": None}  # no answer is null


def test_what_only_the_table_knows_is_refused_for_that_event_alone(db, http, stages):
    http.respond = lambda request: Reply(body=b'{"n": %d}' % (numbered(request) % 4))
    one = stages()
    db.psql("alter table public.second add check (body ->> 'n' <> '2')")
    produce(db, 12)
    arrived(db, 9)
    wait_until(lambda: db.value("select count(*) from outbox.parked where last_error like '%%second_body_check%%' and next_at = 'infinity'") == 3)
    assert one.stop() == 0


def test_a_command_answers_on_standard_output(db, stages):
    one = stages(sink="job", command="jq -c '{doubled: (.payload.of * 2)}'")
    produce(db, 20)
    arrived(db, 20)
    assert one.stop() == 0
    assert sorted(row[0] for row in db.query("select (body ->> 'doubled')::int from public.second")) == [2 * n for n in range(1, 21)]


def test_a_command_that_says_too_much_has_failed(db, stages):
    one = stages(sink="job", command="head -c 201 /dev/zero")
    produce(db, 1)
    wait_until(lambda: db.value("select count(*) from outbox.dead") == 1)
    assert one.stop() == 0
    assert "longer than max_response, which is 200 bytes" in db.value("select reason from outbox.dead")


def test_checks_know_what_an_answer_would_be(db, http, stages, tmp_path):
    stages().stop()
    db.psql("alter table public.second alter body type text; alter table public.second add constraint long check (length(body) > 1)")
    path = tmp_path / "pgcourier.yaml"
    path.write_text(CONFIG.format(db=db.dsn, url="http://localhost", sink="web", command='"cat"', first=", after: archive"))
    done = run_command("check-config", "-c", str(path), "--database")
    assert done.returncode == 0, done


def test_json_is_judged_as_the_database_judges_it(db):
    """The lines of tests/unit/base/json_texts.txt, by which json_check() is held to it."""
    for line in Path(REPO, "tests/unit/base/json_texts.txt").read_text().split("\n")[:-1]:
        for kind, taken in zip(("json", "jsonb"), line[:2]):
            try:
                db.query(f"select %s::{kind}", [line[3:]])
                assert taken == "y", (kind, line)
            except psycopg2.DataError:
                assert taken == "n", (kind, line)
