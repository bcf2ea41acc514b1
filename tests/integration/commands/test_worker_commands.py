"""pgcourier take, done, fail, extend and release: a worker in a shell."""

import json
import os
import socket
import subprocess

import pytest

from tests.support.postgres import OWNER_ROLE
from tests.support.process import REPO
from tests.support.relay import binary, environment
from tests.support.servers import run_command


@pytest.fixture
def tasks(db):
    """tasks(*keys) inserts an event of each key."""
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('tasks', retry_base => '1 day', retry_max => '7 days', max_attempts => 3)")

    def insert(*keys):
        for key in keys:
            db.query("insert into outbox.events (aggregateid, type, payload) values (%s, 'task', '{\"n\": 1}')", (key,))

    return insert


@pytest.fixture
def call(db):
    """call("take", ...) -> its lines, as a worker."""
    def run(*arguments, code=0):
        done = run_command(*arguments, "-d", db.worker_dsn)
        assert done.returncode == code, done.stderr
        return (done.stdout if code == 0 else done.stderr).splitlines()

    return run


def take(call, *arguments):
    return [json.loads(line) for line in call("take", "tasks", *arguments)]


def test_events_are_taken_as_lines_of_json(db, tasks, call):
    assert call("take", "tasks") == []
    tasks("a", "b", "c")
    first, second = take(call, "-n", "2", "--lease", "5m", "--worker", "shell")
    assert {name: first[name] for name in ("id", "key", "type", "payload", "attempt")} == {
        "id": 1, "key": "a", "type": "task", "payload": '{"n": 1}', "attempt": 1}
    assert second["key"] == "b"
    leases = "select worker, expires_at - taken_at > interval '4 minutes' from outbox.status_leases order by event_id"
    assert db.query(leases) == [("shell", True)] * 2
    take(call)
    assert db.query(leases)[2] == (socket.gethostname(), False)


def test_each_verdict_has_a_command(db, tasks, call):
    tasks(*"abcde")
    token = {event["key"]: event["token"] for event in take(call, "-n", "5")}
    assert call("done", token["a"], token["b"]) == []
    assert call("fail", token["c"], "--error", "no such host") == []
    assert call("fail", token["d"], "--error", "no such thing", "--fatal") == []
    assert call("extend", token["e"], "--lease", "1h") == []
    leases = "select key, attempts, next_at > now() + interval '50 minutes' from outbox.parked where token is not null"
    assert db.query(leases) == [("e", 0, True)]
    assert call("extend", token["e"]) == [] and call("release", token["e"]) == []
    assert db.query("select key, last_error from outbox.parked order by 1") == [("c", "no such host"), ("e", "")]
    assert db.query("select key, reason from outbox.dead") == [("d", "no such thing")]
    assert [event["key"] for event in take(call, "-n", "5")] == ["e"]


def test_a_verdict_that_comes_too_late_is_said_and_the_others_count(db, tasks, call):
    tasks("a", "b")
    gone, there = [event["token"] for event in take(call, "-n", "2")]
    call("release", gone)
    said = call("done", gone, there, code=75)
    assert said == [f"pgcourier: done: {gone} came too late: its lease was over, and nothing is changed"]
    assert [row[0] for row in db.query("select aggregateid from outbox.events")] == ["a"]


@pytest.mark.parametrize("arguments, code, message", [
    (["take"], 64, "say which queue"),
    (["take", "tasks", "others"], 64, "one queue at a time"),
    (["take", "tasks", "-n", "1001"], 64, "--count: "),
    (["take", "tasks", "--lease", "soon"], 64, "--lease: "),
    (["take", "nowhere"], 64, "pgcourier: take: there is no queue 'nowhere'"),
    (["done"], 64, "give the token that `pgcourier take` has printed"),
    (["extend", "x", "--lease", "1us"], 64, "--lease: "),
    (["done", "x"], 64, 'pgcourier: done: token "x" is no UUID: write what `pgcourier take` has printed'),
    (["release", ""], 64, 'pgcourier: release: token "" is no UUID: write what `pgcourier take` has printed'),
])
def test_wrong_uses_are_said(tasks, call, arguments, code, message):
    assert message in "\n".join(call(*arguments, code=code))


def test_of_tokens_with_a_slip_in_one_none_is_ended(db, tasks, call):
    tasks("a")
    (taken,) = take(call)
    assert len(call("done", taken["token"], "x", code=64)) == 1
    assert db.value("select count(*) from outbox.events") == 1


def test_a_shell_works_a_queue_off(db, tasks, tmp_path):
    """The example of docs/workers.md."""
    with open(os.path.join(REPO, "docs", "workers.md"), encoding="utf-8") as page:
        script = page.read().split("<!-- workers: shell -->\n```sh\n")[1].split("```")[0]
    tasks("a", "b", "bad")
    db.query("update outbox.events set payload = '{\"fails\": true}' where aggregateid = 'bad'")
    (tmp_path / "work").write_text('#!/bin/sh\njq -e .fails >/dev/null && { echo "it fails" >&2; exit 1; }\nexit 0\n')
    (tmp_path / "work").chmod(0o755)
    env = environment({"PATH": f"{tmp_path}:{binary().rpartition('/')[0]}:/usr/bin:/bin", "DSN": db.worker_dsn})
    done = subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert db.query("select key, last_error from outbox.parked") == [("bad", "it fails")]
    assert db.value("select count(*) from outbox.events") == 1
