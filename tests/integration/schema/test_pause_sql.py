"""outbox.pause() and outbox.resume(): what they write, beside what relays and `pgcourier dead` write to the same entries."""

import os
import re

import psycopg2
import pytest

from tests.support.process import REPO

FOREVER = "infinity"
ENTRY = ("select event_id, attempts, next_at::text, resume_at::text from outbox.parked where queue = 'orders' and key = %s"
         " and not keyless")
PARK = ("insert into outbox.parked (queue, key, event_id, attempts, next_at, last_error)"
        " values ('orders', '7', 12, 3, %s, 'refused')")
LATER = "2099-01-01 00:00:00+00"
BELOW_ALL = -2**63
FOR_NONE = f"{{{BELOW_ALL}}}"  # an event that waits for no other


NAMES = {"state": "outbox", "table": "outbox.events", "id": "id", "key": "e.aggregateid", "key_type": "text", "where": "true",
         "behind_entry": "e.aggregateid = p.key and e.id >= p.event_id",
         "key_all": "e.aggregateid = k.name", "key_all_order": "id",
         "keyless": "false", "conflict": "(queue, key) where not keyless",
         "entry_key": "d.key", "entry": "d.key", "put_id": "e.id", "generated": "'{}'::text[]", "computed": "null::text[]",
         "compared": "(null::text, null::text, null::text)", "computes": "false",
         "closed": "p.key = $2::text and not p.keyless", "key_is": "e.aggregateid = $2::text",
         "columns": "id, aggregateid, event_id, created_at", "fields": "r.id, r.aggregateid, gen_random_uuid(), now()",
         "known": "'{id,aggregateid}'::text[]", "moved": "'{}'::text[]", "moved_to": "'{}'::text[]"}


@pytest.fixture(autouse=True)
def served(db):
    """A relay has been here."""
    db.query("insert into outbox.served (queue) values ('orders')")


@pytest.fixture
def sql(db):
    """sql(path, values): runs a statement of ours for outbox.events."""
    connection = db.connect()

    def run(path, *values):
        with open(os.path.join(REPO, "sql", path)) as file:
            text = "\n".join(line for line in file.read().splitlines() if not line.startswith("--"))
        text = re.sub(r"::|:([a-z_]+)", lambda found: NAMES[found.group(1)] if found.group(1) else "::", text)
        with connection.cursor() as cursor:
            cursor.execute("prepare s as " + text)
            cursor.execute(f"execute s({', '.join(['%s'] * len(values))}); deallocate s", values)

    yield run
    connection.close()


def entry(db):
    rows = db.query("set timezone = 'UTC'; " + ENTRY, ("7",))
    return rows[0] if rows else None


def test_a_queue_is_paused_once_and_resumed_once(db):
    assert db.value("select outbox.is_paused('orders')") is False
    assert db.value("select outbox.pause('orders', reason => 'the shop moves')") is True
    assert db.value("select outbox.pause('orders')") is False
    assert db.query("select queue, key, by = session_user, reason from outbox.paused") == [("orders", None, True, "the shop moves")]
    db.query("insert into outbox.served (queue) values ('mails')")
    assert [db.value(f"select outbox.is_paused('{queue}')") for queue in ("orders", "mails")] == [True, False]
    assert db.value("select outbox.resume('orders', '7')") is False
    assert db.value("select outbox.resume('orders')") is True
    assert db.value("select outbox.resume('orders')") is False
    assert db.value("select count(*) from outbox.paused") == 0


@pytest.mark.parametrize("call", ["pause(null)", "pause('', '7')", "resume(repeat('q', 201))", "resume(null)",
                                  "pause('orders', reason => repeat('x', 1001))"])
def test_bad_input_is_refused_with_a_hint_and_changes_nothing(db, call):
    with pytest.raises(psycopg2.DataError) as refused:
        db.query(f"select outbox.{call}")
    assert refused.value.diag.sqlstate in ("22023", "22001") and refused.value.diag.message_hint
    assert db.value("select count(*) from outbox.paused") == 0


def test_a_key_that_did_not_wait_is_held_back_from_its_first_event_on(db):
    assert db.query("select outbox.pause('orders', '7')") == [(True,)]
    head, attempts, next_at, resume_at = entry(db)
    assert (head, attempts, next_at) == (BELOW_ALL, 0, FOREVER) and resume_at != FOREVER
    assert db.query("select outbox.pause('orders', '7'), outbox.is_paused('orders')") == [(False, False)]
    db.query("select outbox.resume('orders', '7')")
    assert entry(db)[2:] == (resume_at, None)


@pytest.mark.parametrize("next_at", [LATER, FOREVER])
def test_a_key_that_waited_goes_on_waiting_when_it_is_resumed(db, next_at):
    db.query(PARK, (next_at,))
    db.query("select outbox.pause('orders', '7')")
    assert entry(db) == (12, 3, FOREVER, next_at)
    db.query("select outbox.resume('orders', '7')")
    assert entry(db) == (12, 3, next_at, None)


def test_a_paused_key_stays_so_whatever_becomes_of_its_events(db, sql):
    db.query("insert into outbox.events (id, aggregateid) overriding system value values (20, '7'), (21, '7')")
    db.query("select outbox.pause('orders', '7')")
    sql("settle/settle_park.sql", "orders", "{20}", "{7}", "{1}", "{-1}", "{refused}", FOR_NONE, "{}")
    assert entry(db) == (20, 1, FOREVER, FOREVER)
    sql("settle/settle_park.sql", "orders", "{20}", "{7}", "{2}", "{3600000000}", "{refused}", FOR_NONE, "{}")
    assert entry(db)[:3] == (20, 2, FOREVER) and entry(db)[3] not in (None, FOREVER)
    db.query("delete from outbox.events where id = 20")
    sql("settle/settle_unpark.sql", "orders", "{7}", "{}", "{}")
    assert entry(db)[:3] == (21, 0, FOREVER)
    db.query("delete from outbox.events where id = 21")
    sql("settle/settle_unpark.sql", "orders", "{7}", "{}", "{}")
    assert entry(db)[:3] == (21, 0, FOREVER) and entry(db)[3] not in (None, FOREVER)
    db.query("select outbox.resume('orders', '7')")
    sql("settle/settle_unpark.sql", "orders", "{7}", "{}", "{}")
    assert entry(db) is None


@pytest.mark.parametrize("key", ["{7}", "{NULL}"])
@pytest.mark.parametrize("delay_us", ["{-1}", "{3600000000}"])
def test_nothing_waits_for_an_event_that_is_gone(db, sql, key, delay_us):
    """Somebody else has delivered it, when a settlement comes late."""
    db.query("insert into outbox.events (id, aggregateid) overriding system value values (19, %s), (21, %s)", 2 * [key[1] if key == "{7}" else None])
    park = "settle/settle_park.sql", "orders", "{20}", key, "{1}", delay_us, "{refused}", FOR_NONE
    sql(*park, "{}")
    assert db.query("select * from outbox.parked") == []
    token = "00000000-0000-4000-8000-000000000007"
    db.query("insert into outbox.parked (queue, key, keyless, event_id, taken_id, token, next_at) values ('orders', %s, %s, 20, 20, %s, now() + interval '1 h')",
             [key[1] if key == "{7}" else "", key != "{7}", token])
    leased = db.query("select * from outbox.parked")
    sql(*park, "{}")
    assert db.query("select * from outbox.parked") == leased
    sql(*park, "{%s}" % token)
    assert db.query("select event_id, token, next_at <= now() from outbox.parked") == [(20, None, True)], "it was ours"


def test_a_closed_key_that_is_opened_while_it_is_paused_waits_for_its_resumption(db, sql):
    db.query("insert into outbox.events (id, aggregateid) overriding system value values (12, '7'), (13, '7')")
    db.query(PARK, (FOREVER,))
    db.query("select outbox.pause('orders', '7')")
    sql("commands/closed_retry.sql", "orders", "7", None, None)
    head, attempts, next_at, resume_at = entry(db)
    assert (head, attempts, next_at) == (12, 0, FOREVER) and resume_at != FOREVER
    sql("commands/closed_retry.sql", "orders", "7", None, None)
    sql("commands/closed_drop.sql", "orders", "7", None, None)
    assert entry(db) == (head, attempts, next_at, resume_at), "it is not closed any more"
    closed = "update outbox.parked set resume_at = 'infinity', attempts = 1"
    db.query(closed)
    for rest in ([13], []):
        sql("commands/closed_drop.sql", "orders", "7", None, None)
        assert [row[0] for row in db.query("select id from outbox.events")] == rest
        assert entry(db)[:3] == (13, 0, FOREVER)
        db.query(closed)


def test_an_event_that_is_put_back_does_not_resume_its_key(db, sql):
    db.query("select outbox.pause('orders', '7')")
    db.query("insert into outbox.dead (queue, event_id, key, reason, attempts, source_table, original)"
             " values ('orders', 3, '7', 'no', 1, 'outbox.events', '{\"id\": 3, \"aggregateid\": \"7\"}')")
    sql("commands/dead_retry.sql", "orders", [db.value("select dead_id from outbox.dead")])
    assert db.query("select id from outbox.events") == [(3,)]
    assert entry(db)[:3] == (BELOW_ALL, 0, FOREVER) and entry(db)[3] != FOREVER


# That of sql().
THERE = ("(select pid from pg_stat_activity where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()"
         " order by backend_start limit 1)")


@pytest.mark.parametrize("backend, ends", [(THERE, False), ("2147483647", True), ("0", False)], ids=["there", "gone", "none"])
def test_a_lease_whose_backend_is_gone_when_it_is_granted_ends_with_it(db, sql, backend, ends):
    """A relay dies, and the server still does what it was told on another connection."""
    pid = db.value(f"select {backend}")
    sql("lease/lease_grant.sql", "events", ["7"], [1], [0], ["00000000-0000-4000-8000-000000000007"], "a", 3600 * 10**6, pid)
    assert db.query("select next_at > now(), backend_pid from outbox.parked") == [(True, pid or None)]
    sql("lease/lease_end_ownerless.sql", "events")
    assert db.query("select next_at <= now(), token is not null from outbox.parked") == [(ends, True)]
