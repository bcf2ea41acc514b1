"""Entries of keys that wait must not outlive what they wait for: the oldest ones go first into every claim."""

import json

import pytest

from tests.support.journal import read_lines
from tests.support.servers import run_command, wait_until
from tests.support.sql_files import rendered

CONFIG = """
database: "{dsn}"
sinks:
  log: {{ type: file, path: "{out}" }}
queues:
  orders:
    table: public.events
    where: "wanted"
    columns: {{ id: id, key: order_id, type: status }}
    sink: log
    destination: "orders"
"""
TABLE = ("create table public.events (id bigserial primary key, order_id bigint, status text, wanted bool not null default true);"
         "create index on public.events (order_id, id)")
PARK = ("insert into outbox.parked (queue, key, event_id, keyless, attempts, next_at)"
        " values ('orders', %s, %s, %s, 1, now() - interval '1 hour')")


def delivered(path):
    return [event["id"] for event in read_lines(path)] if path.exists() else []


def test_waits_for_events_that_are_gone_end_and_hold_nobody_up(db, relay, tmp_path):
    db.psql(TABLE)
    db.let_relay_in("public.events")
    out = tmp_path / "out.jsonl"
    # More than a claim takes of keys whose wait is over, and an event without a key.
    with db.connect().cursor() as cursor:
        cursor.executemany(PARK, [(str(key), 1_000_000 + key, False) for key in range(1000, 1300)])
        cursor.execute(PARK, ("", 2_000_000, True))
    db.query("insert into public.events (order_id, status) values (7, 'new')")
    db.query("insert into outbox.parked (queue, key, event_id, attempts, next_at) values ('orders', '7', 1, 2, now())")
    one = relay(CONFIG.format(dsn=db.dsn, out=out), until_empty=True)
    assert one.wait(30) == 0
    assert delivered(out) == [1]
    assert json.loads(out.read_text())["attempt"] == 3
    assert db.value("select count(*) from outbox.parked") == 0


def test_events_outside_the_filter_do_not_keep_a_wait(db, relay, tmp_path):
    db.psql(TABLE)
    db.let_relay_in("public.events")
    out = tmp_path / "out.jsonl"
    db.query("insert into public.events (order_id, status, wanted) values (7, 'a', true), (7, 'b', false)")
    db.query("insert into outbox.parked (queue, key, event_id, attempts, next_at) values ('orders', '7', 1, 1, now())")
    one = relay(CONFIG.format(dsn=db.dsn, out=out))
    wait_until(lambda: db.value("select count(*) from outbox.parked") == 0, 60, "the entry to go")
    assert one.stop() == 0
    assert delivered(out) == [1]
    assert db.value("select count(*) from public.events") == 1


@pytest.mark.parametrize("keyless", [False, True])
@pytest.mark.parametrize("keys", [0, 1])
@pytest.mark.parametrize("key", ["7", "seven"])
def test_wait_that_no_claim_takes_is_no_news_for_an_idle_queue(db, keyless, keys, key):
    """Keys of an unordered queue, and those of another type: they would have it claim for ever."""
    text = rendered("claim", "claim_peek.sql", table="outbox.events", where="true", id="e.id", state="outbox",
                    parked_key="case when p.key ~ '^[0-9]+$' then p.key::bigint end")
    db.query(PARK, ("" if keyless else key, 1, keyless))
    with db.connect() as connection, connection.cursor() as cursor:
        cursor.execute("prepare peek as " + text)
        cursor.execute("execute peek(0, 'orders', %s)", (keys,))
        assert len(cursor.fetchall()) == (1 if keyless or (keys and key == "7") else 0)
    connection.close()


def test_waits_left_from_a_key_column_of_another_type_hold_nobody_up(db, relay, tmp_path):
    db.psql(TABLE)
    db.let_relay_in("public.events")
    out = tmp_path / "out.jsonl"
    alien = ["xyz", "", "-", "007", "-0", " 7", "7.0", "abc", "9223372036854775808", "-9223372036854775809", "99999999999999999999"]
    with db.connect().cursor() as cursor:
        cursor.executemany(PARK, [(key, 1 + number, False) for number, key in enumerate(alien)])
        cursor.executemany(PARK, [(key, 1, False) for key in ("-9223372036854775808", "9223372036854775807")])
    db.query("insert into public.events (order_id, status) values (7, 'new'), (9223372036854775807, 'new')")
    one = relay(CONFIG.format(dsn=db.dsn, out=out), until_empty=True)
    assert one.wait(30) == 0
    assert sorted(delivered(out)) == [1, 2]
    assert not one.logged("claim.failed|settle.failed|side.failed")
    assert sorted(key for key, in db.query("select key from outbox.parked")) == sorted(alien)
    assert run_command("dead", "drop", "--all", "-c", one.config_path).returncode == 0


def test_dead_takes_up_keys_of_another_type_too(db, tmp_path):
    db.psql(TABLE)
    db.let_relay_in("public.events")
    db.query("insert into outbox.parked (queue, key, event_id, attempts, next_at) values ('orders', 'abc', 1, 1, 'infinity')")
    db.query("insert into outbox.dead (queue, event_id, key, reason, attempts, source_table, original)"
             " values ('orders', 2, 'xyz', 'no', 1, 'public.events', '{}'), ('orders', 3, '7', 'no', 1, 'public.events', '{}')")
    path = tmp_path / "pgcourier.yaml"
    path.write_text(CONFIG.format(dsn=db.dsn, out=tmp_path / "out.jsonl"))
    done = run_command("dead", "drop", "--all", "-c", str(path))
    assert done.stdout == "dropped 2 dead letters, opened 1 closed key\n", done.stderr
    assert db.value("select count(*) from outbox.parked") == 0
