"""What others do with the table and its rows meanwhile."""

import contextlib
import random

from tests.support.chaos.bounds import note_lost_claims
from tests.support.chaos.fleet import LOCK_CLASS


@contextlib.contextmanager
def application(stage, patience="1s"):
    """A transaction of somebody else's, who does not wait long for anything: whoever comes after a lock that is waited for
    waits, too, and a relay for 5 s at most."""
    connection = stage.db.connect(autocommit=False)
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"set lock_timeout = '{patience}'")
            yield cursor
    finally:
        connection.close()


def table_locked(stage, step):
    mode = "access exclusive" if step.pick % 2 else "exclusive"
    with stage.hold("table"), application(stage) as cursor:
        stage.note(step, 0)
        cursor.execute(f"lock table public.events in {mode} mode")
        yield


def table_locked_for_long(stage, step):
    with stage.hold("table"), application(stage, '3s') as cursor:
        note_lost_claims(stage, step, stage.fleet.names(None))
        cursor.execute(f"lock table public.events in {'access exclusive' if step.pick % 2 else 'exclusive'} mode")
        yield


def table_vacuum(stage, step):
    statements = ["vacuum public.events", "vacuum (analyze) public.events", "analyze public.events", "vacuum outbox.parked",
                  "reindex table concurrently public.events"]
    stage.note(step, 0)
    stage.db.query(statements[step.pick % len(statements)])
    yield


def table_old_snapshot(stage, step):
    with application(stage) as cursor:
        stage.note(step, 0)
        cursor.execute("set transaction isolation level repeatable read")
        cursor.execute("select count(*) from public.orders")
        yield


def table_rows_locked(stage, step):
    """In the order of their ids, as relays delete rows that lie in that order, or against it and waiting for them, which ends in deadlocks."""
    deadlocks = step.pick % 2
    with stage.hold("table"), application(stage) as cursor:
        if deadlocks:
            note_lost_claims(stage, step, stage.fleet.names(None))
        else:
            stage.note(step, 0)
        cursor.execute(f"select from public.events order by id {'desc for update' if deadlocks else 'for update skip locked'}"
                       " limit %s", (int(step.amount),))
        yield


def table_keys_locked(stage, step):
    keys = sorted(random.Random(step.pick).sample(range(1, stage.shop.orders + 1), int(step.amount)))
    with application(stage) as cursor:
        stage.note(step, 0)
        cursor.execute("select from public.orders where id = any (%s) order by id for update", (keys,))
        cursor.execute("select pg_advisory_xact_lock(%s, hashint8(key)) from unnest(%s::bigint[]) as key", (LOCK_CLASS, keys))
        yield


KINDS = {
    "table.locked": table_locked,
    "table.locked_for_long": table_locked_for_long,
    "table.vacuum": table_vacuum,
    "table.old_snapshot": table_old_snapshot,
    "table.rows_locked": table_rows_locked,
    "table.keys_locked": table_keys_locked,
}
