"""A relay tells its secrets to nobody but the servers they are for, and listens for nobody."""

import os
import signal

import pytest

from tests.support import servers
from tests.support.history import Fault, Final, check
from tests.support.relay import run_command
from tests.support.servers import Reply, wait_until
from tests.support.targets import HttpTarget

CANARY = "canary-7f3a"
SECRETS = {name: f"{CANARY}-{name}" for name in ("database", "bearer", "header", "url", "redis", "sasl", "payload")}

CONFIG = """\
database_file: {folder}/database
stats_interval: 1s
sinks:
  web:
    type: http
    url: "http://127.0.0.1:{port}/in?token={url}"
    bearer_token_file: {folder}/bearer
    headers: {{ X-Key: "{header}" }}
    timeout: 5s
  streams: {{ type: redis, url: "redis://127.0.0.1:{closed}/0", password_file: {folder}/redis }}
  log:
    type: kafka
    properties:
      {{ bootstrap.servers: "127.0.0.1:{closed}", security.protocol: sasl_plaintext, sasl.mechanism: PLAIN, sasl.username: u }}
    sasl_password_file: {folder}/sasl
    down_after: 500ms
queues:
  web: {{ table: public.web, columns: {{ payload: body }}, sink: web, retry: {{ base: 10ms, attempts: 2 }} }}
  streams: {{ table: public.streams, columns: {{ payload: body }}, sink: streams, destination: s }}
  log: {{ table: public.log, columns: {{ payload: body }}, sink: log, destination: t }}
"""


@pytest.fixture
def config(db, http, tmp_path):
    for table in ("web", "streams", "log"):
        db.psql(f"create table public.{table} (id bigserial primary key, body text);"
                f" insert into public.{table} (body) select '{SECRETS['payload']}' from generate_series(1, 10)")
        db.let_relay_in(f"public.{table}")
    secrets = {**SECRETS, "database": f"{db.dsn} password={SECRETS['database']}"}
    for name, text in secrets.items():
        (tmp_path / name).write_text(text + "\n")
        (tmp_path / name).chmod(0o600)
    return CONFIG.format(folder=tmp_path, port=http.port, closed=servers.free_port(), url=SECRETS["url"],
                         header=SECRETS["header"])


def read(path):
    with open(path, "rb") as file:
        return file.read().decode(errors="replace")


def test_no_secret_and_no_payload_is_told(relay, db, http, config):
    """Neither where others can read it, nor in what goes wrong: refused requests, sinks that are away, a server that goes, a
    configuration that is read again."""
    http.rule(lambda request: True, lambda request: Reply(500, body=request.body + str(request.headers).encode()), times=15)
    one = relay(config)
    wait_until(lambda: http.requests, 30, "a request")
    assert http.requests[0].headers["authorization"] == f"Bearer {SECRETS['bearer']}", "the secrets are those that are used"
    for sink in ("streams", "log"):
        wait_until(lambda sink=sink: one.logged(f"sink.down.*sink={sink}"), 30, f"{sink} to be away")
    assert CANARY not in read(f"/proc/{one.pid}/cmdline") + read(f"/proc/{one.pid}/environ")
    assert db.query("select application_name, query from pg_stat_activity where query ~ %s and application_name = 'pgcourier'",
                    (CANARY,)) == []
    db.query("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pgcourier'"
             " and datname = current_database()")
    wait_until(lambda: one.logged("database.down"), 30, "the relay to notice")
    one.configure(config.replace("timeout: 5s", "timeout: never"))
    one.send(signal.SIGHUP)
    wait_until(lambda: one.logged("config.refused"), 30, "the relay to refuse it")
    wait_until(lambda: db.value("select count(*) from public.web") == 0, 60, "the events to be gone one way or the other")
    commands = (["check-config"], ["check-config", "--database"], ["status"])
    told = [run_command(*command, "-c", one.config_path) for command in commands]
    one.configure(config)
    told += [run_command(*command, "-c", one.config_path) for command in commands]
    one.kill()
    dead = [event_id for (event_id,) in db.query("select event_id from outbox.dead where queue = 'web'")]
    check([(number, None) for number in range(1, 11)], HttpTarget(http).receipts(), [Fault("the backends are gone", 10)],
          Final(dead=dead), attempts=2).require()
    for number, text in enumerate([*(done.stdout + done.stderr for done in told), "\n".join(one.log)]):
        assert CANARY not in text, f"output {number} tells a secret or a payload"


def test_a_relay_listens_for_nobody(relay, db, config, http):
    """There is no port and no socket to come in by, and it serves nobody but its queues."""
    one = relay(config)
    wait_until(lambda: http.requests, 30, "a request")
    inodes = {os.readlink(f"/proc/{one.pid}/fd/{name}") for name in os.listdir(f"/proc/{one.pid}/fd")}
    for table, state, listening, inode in (("tcp", 3, "0A", 9), ("tcp6", 3, "0A", 9), ("unix", 5, "01", 6)):
        for line in read(f"/proc/net/{table}").splitlines()[1:]:
            words = line.split()
            flagged = words[state] == listening and (table != "unix" or int(words[3], 16) & 0x10000)
            assert not (flagged and f"socket:[{words[inode]}]" in inodes), line
    wait_until(lambda: db.value("select count(*) from public.web") == 0, 60, "the events to be delivered")
    one.kill()
    check([(number, None) for number in range(1, 11)], HttpTarget(http).receipts()).require()
