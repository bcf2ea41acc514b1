"""Entries of keys that wait must not outlive what they wait for: the oldest ones go first into every claim."""

import json

from tests.support.servers import wait_until

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
    return [json.loads(line)["id"] for line in path.read_text().splitlines()] if path.exists() else []


def test_waits_for_events_that_are_gone_end_and_hold_nobody_up(db, relay, tmp_path):
    db.psql(TABLE)
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
    out = tmp_path / "out.jsonl"
    db.query("insert into public.events (order_id, status, wanted) values (7, 'a', true), (7, 'b', false)")
    db.query("insert into outbox.parked (queue, key, event_id, attempts, next_at) values ('orders', '7', 1, 1, now())")
    one = relay(CONFIG.format(dsn=db.dsn, out=out))
    wait_until(lambda: db.value("select count(*) from outbox.parked") == 0, 20, "the entry to go")
    assert one.stop() == 0
    assert delivered(out) == [1]
    assert db.value("select count(*) from public.events") == 1
