"""A relay that runs before the first event was ever inserted."""

import pytest

from tests.support.journal import read_lines
from tests.support.servers import wait_until
from tests.support.statement_log import StatementLog

CONFIG = """
database: "{dsn}"
sinks: {{ none: {{ type: discard }} }}
queues:
  orders:
    table: public.events
    columns: {{ key: order_id }}
    sink: none
"""

IDS = ["bigserial primary key", "bigint generated always as identity primary key",
       "bigint generated always as identity (start with 1000) primary key",
       "bigint generated always as identity (minvalue -5 start with -5) primary key"]


@pytest.mark.parametrize("id_type", IDS)
def test_the_very_first_event_of_a_table_is_delivered(db, relay, id_type):
    db.query(f"create table public.events (id {id_type}, order_id bigint)")
    db.let_relay_in("public.events")
    running = relay(CONFIG.format(dsn=db.dsn), arguments=["--log-level=debug"])
    # By then it has learned how far the ids go, more than once.
    wait_until(lambda: len(running.logged("claim.done")) >= 8, what="claims of an empty table")
    db.query("insert into public.events (order_id) values (7)")
    wait_until(lambda: db.value("select count(*) from public.events") == 0, what="the first event to be delivered")
    assert running.stop() == 0


def test_a_sequence_that_is_set_back_under_a_running_relay_hides_nothing(db, relay):
    """TRUNCATE ... RESTART IDENTITY does it, and so does a failover that loses the last transactions."""
    db.query("create table public.events (id bigserial primary key, order_id bigint)")
    db.let_relay_in("public.events")
    db.query("insert into public.events (order_id) select 7 from generate_series(1, 1000)")
    running = relay(CONFIG.format(dsn=db.dsn), arguments=["--log-level=debug"])
    wait_until(lambda: db.value("select count(*) from public.events") == 0, what="all to be delivered")
    claims = len(running.logged("claim.done"))
    wait_until(lambda: len(running.logged("claim.done")) >= claims + 20, what="claims of an empty table")
    db.query("alter sequence public.events_id_seq restart")
    db.query("insert into public.events (order_id) values (7)")
    wait_until(lambda: db.value("select count(*) from public.events") == 0, what="the event with a used id")
    assert running.stop() == 0


def test_ids_that_a_truncated_table_draws_again_keep_their_order(db, relay, tmp_path):
    """When the relay asks again, they are beyond where they were."""
    db.query("create table public.events (id bigserial primary key, order_id bigint)")
    db.let_relay_in("public.events")
    fill = "insert into public.events (order_id) select n %% 10 from generate_series(1, %s) n"
    db.query(fill, (1000,))
    statements = StatementLog(db)
    path = tmp_path / "events.jsonl"
    running = relay(CONFIG.format(dsn=db.dsn).replace("type: discard", f'type: file, path: "{path}"'))
    wait_until(lambda: db.value("select count(*) from public.events") == 0, what="all to be delivered")
    statements.forget()
    statements.wait_for_probes(3)
    db.query("select outbox.pause('orders')")  # nothing is claimed before it has asked again
    wait_until(lambda: running.logged("queue.paused"), what="the relay to pause")
    db.query("truncate public.events restart identity; " + fill, (2000,))
    statements.forget()
    statements.wait_for_probes(2)
    db.query("select outbox.resume('orders')")
    wait_until(lambda: db.value("select count(*) from public.events") == 0, what="all to be delivered")
    assert running.stop() == 0
    keys = {}
    for event in list(read_lines(path))[1000:]:
        keys.setdefault(event["key"], []).append(event["id"])
    assert keys == {str(key): list(range(key or 10, 2001, 10)) for key in range(10)}
