"""Names of queues and keys that SQL is given: what nothing knows is refused, with a hint, and changes nothing."""

import psycopg2
import pytest

from tests.support.postgres import OWNER_ROLE
from tests.support.servers import run_command

CONFIG = """
database: "{dsn}"
sinks: {{ none: {{ type: discard }} }}
queues: {{ orders: {{ sink: none }} }}
"""
JOBS = "create table public.jobs (id bigserial primary key, customer bigint, token uuid)"
CALLS = ["pause('{}')", "pause('{}', '7')", "resume('{}')", "resume('{}', '7')", "look_again('{}')", "look_again('{}', '7')",
         "archive_expire('{}', null)", "is_paused('{}')", "schedule_run('{}')", "replay('{}', ids => '{{1}}')"]
A_REPLAY = "insert into outbox.replay (queue, source, events) values ('orders', 'archive', 1) returning replay_id"
UUID = "406c07f3-26f0-4eea-a50c-109940064b8f"


@pytest.fixture
def config(db, tmp_path):
    path = tmp_path / "pgcourier.yaml"
    path.write_text(CONFIG.format(dsn=db.dsn))
    return str(path)


def written(db):
    return [db.query(f"select * from outbox.{table}") for table in ("paused", "parked", "replay", "served", "archive_retention")]


def refused(db, call, sqlstate):
    before = written(db)
    with pytest.raises(psycopg2.Error) as error:
        db.query(f"select outbox.{call}")
    assert error.value.diag.sqlstate == sqlstate and written(db) == before
    return error.value.diag.message_primary, error.value.diag.message_hint


@pytest.mark.parametrize("call", CALLS)
def test_a_queue_that_nothing_knows_is_refused(db, relay, call):
    db.query("insert into outbox.served (queue) values ('orders')")
    message, hint = refused(db, call.format("odrers"), "42704")
    assert "there is no queue 'odrers'" in message
    assert hint and ("replay" in call or "Those that are known: orders." in hint)


@pytest.mark.parametrize("call", CALLS[:-1])
def test_a_queue_of_a_configuration_is_known_once_a_relay_has_served_it(db, relay, call):
    refused(db, call.format("orders"), "42704")
    assert relay(CONFIG.format(dsn=db.dsn), until_empty=True).wait() == 0
    assert relay(CONFIG.format(dsn=db.dsn), until_empty=True).wait() == 0
    assert db.query("select queue from outbox.served") == [("orders",)]
    db.query(f"select outbox.{call.format('orders')}")


def test_a_relay_that_may_not_note_its_queues_serves_them(db, relay):
    db.query("revoke execute on function outbox.note_served(text, regclass, integer, text, jsonb) from outbox_relay; insert into outbox.events (type) values ('t')")
    one = relay(CONFIG.format(dsn=db.dsn), until_empty=True)
    assert one.wait() == 0
    assert "has no EXECUTE on function outbox.note_served(text, regclass, integer, text, jsonb)" in "\n".join(one.log)
    assert db.query("select * from outbox.served") == [] and db.value("select count(*) from outbox.events") == 0


@pytest.mark.parametrize("known", ["select outbox.queue_set('orders')", "insert into outbox.archive_retention (queue) values ('orders')",
                                   "insert into outbox.dead (queue, event_id, reason, attempts, source_table, original)"
                                   " values ('orders', 1, '', 1, 't', '{}')",
                                   "insert into outbox.parked (queue, key, event_id, next_at) values ('orders', 'k', 1, now())"])
def test_a_queue_is_known_by_what_is_here_of_it(db, known):
    db.query(known)
    assert db.query("select outbox.pause('orders'), outbox.resume('orders')") == [(True, True)]


def test_a_new_queue_may_be_paused_before_anything_has_served_it(db, config):
    assert db.value("select outbox.pause('orders', is_new => true)") is True
    assert db.value("select outbox.resume('orders')") is True, "a pause makes it known"
    db.query("select outbox.archive_expire('later', null, is_new => true)")
    assert db.query("select queue from outbox.archive_retention") == [("later",)]
    for verb, said in ("pause", "is paused"), ("resume", "goes on"), ("resume", "was not paused"):
        done = run_command(verb, "-c", config, "orders")
        assert (done.returncode, done.stdout) == (0, f"orders {said}\n"), done.stderr


def test_a_key_without_events_may_be_paused(db):
    db.query("insert into outbox.served (queue) values ('orders')")
    assert db.value("select outbox.pause('orders', 'not seen yet')") is True
    assert db.value("select outbox.look_again('orders', 'nor this one')") == 0


@pytest.mark.parametrize("column, good, bad", [("customer", ["0", "-7", "42", str(2 ** 63 - 1)], ["", "007", " 7", "+7", "seven", "7.0", str(2 ** 63)]),
                                               ("token", [UUID], [UUID.upper(), UUID.replace("-", ""), "7"]), (None, [], ["7"])])
def test_a_key_that_its_column_never_shows_is_refused(db, column, good, bad):
    db.query(f"{JOBS}; grant select, delete on public.jobs to {OWNER_ROLE}; set role {OWNER_ROLE}")
    name = f"'{column}'" if column else "null"
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('jobs', 'public.jobs', key_column => {name})")
    for key in bad:
        for call in "pause", "resume", "look_again":
            message, hint = refused(db, f"{call}('jobs', '{key}')", "22023")
            assert f"'{key}' is no key of queue 'jobs'" in message and hint
    for key in good:
        assert db.value(f"select outbox.pause('jobs', '{key}')") is True


def test_a_replay_is_no_queue(db):
    db.query("insert into outbox.served (queue) values ('orders')")
    number = db.value(A_REPLAY)
    db.query(f"insert into outbox.parked (queue, key, event_id, next_at, attempts) values ('orders (replay {number})', 'k', 1, 'infinity', 1)")
    for call in CALLS[:-1]:
        message, hint = refused(db, call.format(f"orders (replay {number})"), "22023")
        assert message.endswith(f"'orders (replay {number})' is no queue but a replay of queue 'orders'")
        assert f"--resume {number}" in hint and f"--cancel {number}" in hint
