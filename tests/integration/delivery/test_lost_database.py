"""A command whose database goes away, at whichever statement, says so in one line and ends with 69."""

import pathlib

import pytest

from tests.support.proxy import UP, Proxy
from tests.support.servers import run_command

SQL = pathlib.Path(__file__).parents[3] / "sql"
TABLE = ["table/table_find", "table/table_columns", "table/table_indexes"]
CHECK = [*TABLE, "table/table_server", "table/table_privileges", "table/table_facts", "table/table_deletes",
         "table/table_sequence", "explain select"]

CONFIG = """
database: "{dsn}"
sinks: {{ none: {{ type: discard }} }}
queues:
  orders: {{ table: public.t, columns: {{ key: key, created_at: at }}, where: "key <> 'x'", sink: none }}
  others: {{ table: public.u, columns: {{ key: key, created_at: at }}, sink: none }}
"""
COMMANDS = {  # statements by their file, or by words of theirs
    "status": [*TABLE, "from pg_class c", "select case when pg_catalog.isfinite", "commands/status_state"],
    "dead list": ["commands/dead_list", "commands/dead_list_closed"],
    "dead show --all": ["commands/dead_show"],
    "dead retry --all": [*TABLE, "commands/dead_columns", "commands/dead_letters", "begin isolation level", "outbox.keep_id",
                         "with taken as", "with resumed as", "commit"],
    "check-config --database": [*CHECK, "table/table_overlap"],
    "run --until-empty": [*CHECK, "table/table_overlap", "begin isolation level", "serving/serving_turn", "serving/serving_may",
                          "serving/serving_hold", "serving/serving_note"],
}
MIGRATION = ["begin", "commands/schema_lock", "commands/schema_exists", "commands/schema_newest", "commands/schema_record", "commit"]


@pytest.fixture(scope="module")
def shop(pg, migrated_template):
    db = pg.create_database(migrated_template())
    for table in "tu":
        db.query(f'create table public.{table} (id bigserial primary key, key text collate "C", at timestamptz)')
        db.query(f"create index on public.{table} (key, id)")
    db.query("insert into outbox.dead (queue, event_id, key, reason, attempts, source_table, original)"
             " values ('orders', 1, 'k', 'no', 3, 'public.t', '{\"id\": 1, \"key\": \"k\"}')")
    db.let_operator_in("public.t", "public.u")
    with Proxy(pg.port) as proxy:
        yield db, proxy
    db.drop()


@pytest.fixture
def lose(shop, pg, tmp_path):
    """Runs a command whose connection ends where it would send `statement`."""
    db, proxy = shop

    def run(command, statement, dsn=None):
        through = (dsn or db.operator_dsn).replace(f"port={pg.port}", f"port={proxy.port}")
        path = tmp_path / "pgcourier.yaml"
        path.write_text(CONFIG.format(dsn=through))
        file = SQL / f"{statement}.sql"
        text = file.read_text().splitlines()[0] if file.exists() else statement
        # Every connection is tried with an empty transaction first.
        trap = proxy.cut_before(text.encode(), UP, skip=int(text in ("begin", "commit")))
        where = ["-d", through] if command == "migrate" else ["-c", str(path)]
        done = run_command(*command.split(), *where)
        proxy.forget()
        assert trap.sprung, f"{command} sends no {statement}"
        return done

    return run


def assert_says_so(done):
    assert done.returncode == 69, done.stderr + done.stdout
    last = done.stderr.splitlines()[-1]  # a relay has logged before what it found wrong with its server
    assert last.startswith("pgcourier: ") and "server closed the connection unexpectedly" in last, done.stderr


@pytest.mark.parametrize("command, statement", [(command, one) for command in COMMANDS for one in COMMANDS[command]])
def test_a_command_says_that_its_database_is_gone(lose, command, statement):
    assert_says_so(lose(command, statement))


@pytest.mark.parametrize("statement", MIGRATION)
def test_a_migration_that_loses_its_database_can_be_run_again(lose, pg, statement):
    db = pg.create_database()
    if statement == "commands/schema_newest":
        assert run_command("migrate", "-d", db.owner_dsn).returncode == 0
    assert_says_so(lose("migrate", statement, dsn=db.owner_dsn))
    assert run_command("migrate", "-d", db.owner_dsn).returncode == 0
    assert db.value("select count(*) from outbox.schema_version") == len(list((SQL / "schema").glob("*.sql")))
    db.drop()
