"""What a relay believes about ids that it has not seen yet."""

import pytest

from tests.support.servers import wait_until
from tests.support.statement_log import StatementLog

TABLES = ["create table events (id bigserial primary key, order_id bigint)",
          "create table events (id bigint primary key, order_id bigint); create sequence s start 500 owned by events.id; "
          "alter table events alter id set default nextval('s')"]


def looked_for_the_floor(statements):
    """The relay has found the table empty up to the id that it believes was drawn last, and gone on since. It asks once."""
    _, asked, since = statements.text().rpartition("as floor")
    return asked and "execute" in since


@pytest.mark.parametrize("table", TABLES, ids=["from 1", "from 500"])
def test_first_event_of_a_table_that_was_new_when_the_relay_started_is_delivered(db, relay, tmp_path, table):
    db.psql(f"{table}; create index on events (order_id, id)")
    db.let_relay_in("public.events")
    statements = StatementLog(db)
    path = tmp_path / "events.jsonl"
    relay(f'database: "{db.dsn}"\nsinks:\n  log: {{ type: file, path: "{path}" }}\n'
          "queues:\n  orders: { table: public.events, columns: { key: order_id }, sink: log }\n")
    wait_until(lambda: looked_for_the_floor(statements), what="the relay to look for the smallest id")
    db.query("insert into events (order_id) values (1)")
    wait_until(lambda: path.exists() and path.read_text().count("\n") == 1, what="the first event to arrive")
