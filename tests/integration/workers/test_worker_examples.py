"""The examples of docs/workers.md run as they stand there."""

import os
import re
import signal
import sys
from urllib.parse import quote

import pytest

from tests.support.postgres import OWNER_ROLE, WORKER_ROLE
from tests.support.process import REPO, Process, find_program
from tests.support.servers import wait_until

PAGE = os.path.join(REPO, "docs", "workers.md")
NODE_PATH = f"/usr/share/nodejs:{REPO}/.cache/node/node_modules"


def example(language, name):
    with open(PAGE) as file:
        (text,) = re.findall(rf"^<!-- workers: {name} -->\n```{language}\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL)
    return text


def test_the_queues_of_the_page_are_made(db):
    with open(PAGE) as file:
        first, second = re.findall(r"^```sql\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL)[:2]
    db.psql(f"set role {OWNER_ROLE};" + first)
    db.psql(second)
    assert db.query("select name, tbl::text, max_attempts, after from outbox.queue order by 1") == [
        ("jobs", "jobs", 5, "archive"), ("tasks", "outbox.events", 12, "delete")]


def test_the_psql_example_runs(db):
    db.query("select outbox.queue_set('tasks')")
    assert db.psql(example("sql", "psql")).splitlines() == ["working on 1", "t", "t"]
    assert db.query("select * from outbox.events") == []


@pytest.mark.parametrize("language, name, command", [
    ("python", "python", [sys.executable, "-c"]),
    ("js", "node", ["node", "-e"]),
], ids=["python", "node"])
def test_the_example_of_a_language_works_a_queue_off_and_stops_when_told(db, tmp_path, language, name, command):
    db.query("select outbox.queue_set('tasks', max_attempts => 1)")
    db.query("insert into outbox.events (aggregateid, payload) select 'order-' || n % 7, jsonb_build_object('total', n) from generate_series(1, 40) n")
    db.query("insert into outbox.events (aggregateid, payload) values ('order-8', null)")
    server = db.server
    env = {**os.environ, "DSN": db.worker_dsn, "NODE_PATH": NODE_PATH,
           "DATABASE_URL": f"postgresql://{WORKER_ROLE}@127.0.0.1:{server.port}/{quote(db.name)}"}
    log = str(tmp_path / "log")
    worker = Process([find_program(command[0], "/usr/bin"), command[1], example(language, name)], log, env=env)
    try:
        wait_until(lambda: db.query("select * from outbox.events") == [] or worker.returncode is not None, 60, "the tasks to be done")
    finally:
        code = worker.end(signal.SIGTERM, 20)
    with open(log) as file:
        output = file.read()
    assert code == 0, output
    assert sorted(re.findall(r"^invoice (\d+)$", output, re.MULTILINE), key=int) == [str(n) for n in range(1, 41)], output
    assert db.query("select key, attempts from outbox.dead") == [("order-8", 1)]
