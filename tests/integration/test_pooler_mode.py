"""A pooler in statement mode cannot serve: said at the start, in one line."""

import pytest

from tests.support.servers import PgBouncer, run_command

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
