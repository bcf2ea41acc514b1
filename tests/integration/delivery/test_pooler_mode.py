"""A pooler in statement mode cannot serve: said at the start, in one line."""

import pytest

from tests.support.postgres import RELAY_ROLE
from tests.support.servers import PgBouncer, run_command
from tests.support.shop import Shop
from tests.support.targets import FileTarget

CONFIG = """
database: "{dsn}"
sinks: {{ none: {{ type: discard }} }}
queues: {{ orders: {{ sink: none }} }}
"""


@pytest.mark.parametrize("command", [["run"], ["check-config", "--database"]])
def test_statement_mode_is_refused_with_the_remedy(pg, db, tmp_path, command):
    path = tmp_path / "pgcourier.yaml"
    with PgBouncer(pg, pool_mode="statement") as pooler:
        path.write_text(CONFIG.format(dsn=pooler.dsn(db.name)))
        result = run_command(*command, "-c", str(path))
    assert result.returncode == 78
    assert result.stderr.startswith("pgcourier: database: ") and result.stderr.count("\n") == 1
    assert "transaction blocks not allowed in statement pooling mode" in result.stderr
    assert result.stderr.endswith("; a pooler has to be in transaction or session mode\n")


def test_what_was_refused_is_delivered_when_the_pooler_is_in_transaction_mode(pg, db, relay, tmp_path):
    shop, target = Shop(db), FileTarget(tmp_path / "events.jsonl", sync=False)
    shop.add(200, keys=20)
    for mode, status in (("statement", 78), ("transaction", 0)):
        with PgBouncer(pg, pool_mode=mode, user=RELAY_ROLE) as pooler:
            config = shop.config(target.sink(), database=pooler.dsn(db.name), **target.queue)
            assert relay(config, until_empty=True).wait() == status
    shop.check(target.receipts())
