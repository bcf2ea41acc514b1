"""pgcourier failures, dead --error, and status --watch: what failed with what, and all of it again."""

import json
import os
import pty
import re
import subprocess

import pytest

from tests.support.relay import binary
from tests.support.servers import run_command, wait_until

CONFIG = """
database: "{dsn}"
sinks: {{ none: {{ type: discard }} }}
queues:
  orders: {{ sink: none, where: "type is null" }}
  others: {{ sink: none, where: "type is not null" }}
"""
BURY = """
insert into outbox.dead (queue, event_id, key, reason, attempts, source_table, original, died_at)
select %(queue)s, n, n %% 3, %(reason)s, 3, 'outbox.events', json_build_object('id', n, 'aggregateid', n %% 3, 'event_id',
       gen_random_uuid(), 'created_at', now()), '2026-11-21 10:00:00Z' from generate_series(%(low)s, %(high)s) n
"""


@pytest.fixture
def path(db, tmp_path):
    for queue, reason, low, high in [("orders", "timeout of a", 1, 4), ("orders", "timeout of b", 5, 6), ("orders", "no 100 % in it", 7, 7),
                                     ("others", "timeout of a", 8, 8)]:
        db.query(BURY, {"queue": queue, "reason": reason, "low": low, "high": high})
    db.query("insert into outbox.parked (queue, key, event_id, next_at, last_error) values ('orders', '7', 9, 'infinity', 'timeout of c'),"
             " ('orders', '8', 10, 'infinity', 'full'), ('orders', '9', 11, now() + interval '1 hour', 'timeout of a')")
    file = tmp_path / "pgcourier.yaml"
    file.write_text(CONFIG.format(dsn=db.operator_dsn))
    return str(file)


def run(*arguments, code=0):
    done = run_command(*arguments)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_failures_are_listed_most_often_first(path):
    heads, first, second, *rest = run("failures", "-c", path).splitlines()
    assert heads.split() == ["dead", "waiting", "first", "last", "queue", "error"]
    assert re.match(r" +4 +1 2026-11-21T10:00:00Z 20\S+Z orders +timeout of a$", first)
    assert re.match(r" +2 +0 2026-11-21T10:00:00Z 2026-11-21T10:00:00Z orders +timeout of b$", second)
    assert [line.split(maxsplit=5)[4:] for line in rest] == [["orders", "full"], ["orders", "no 100 % in it"], ["orders", "timeout of c"],
                                                             ["others", "timeout of a"]]
    assert len(run("failures", "-c", path, "-n", "2").splitlines()) == 3


def test_failures_are_json_for_programs(path):
    (only,) = json.loads(run("failures", "-c", path, "--json", "--queue", "others"))
    assert (only["error"], only["dead"], only["waiting"], only["estimated"]) == ("timeout of a", 1, 0, False)
    assert len(json.loads(run("failures", "-c", path, "--json"))) == 6


def test_estimates_are_marked(db, path):
    db.query(BURY, {"queue": "orders", "reason": "often", "low": 1000, "high": 30000})
    assert re.match(r" +~[23]\d{4} +~0 .* often$", run("failures", "-c", path).splitlines()[1])


def test_what_failed_alike_is_listed_shown_and_dropped_alike(db, path):
    assert len(json.loads(run("dead", "list", "-c", path, "--json", "--error", "timeout%"))) == 8
    assert {letter["id"] for letter in json.loads(run("dead", "show", "-c", path, "--json", "--error", "timeout of b"))} == {5, 6}
    assert run("dead", "drop", "-c", path, "--error", "%100 \\% in%") == "dropped 1 dead letter, opened 0 closed keys\n"
    assert db.value("select count(*) from outbox.dead") == 7


def test_t5_all_that_failed_alike_is_restarted_at_once(db, path):
    assert run("dead", "retry", "-c", path, "--queue", "orders", "--error", "timeout%") == "retried 6 dead letters, opened 1 closed key\n"
    assert [row[0] for row in db.query("select id from outbox.events order by 1")] == [1, 2, 3, 4, 5, 6]
    assert db.query("select queue, reason from outbox.dead order by 1") == [("orders", "no 100 % in it"), ("others", "timeout of a")]
    assert db.query("select key from outbox.parked where next_at = 'infinity'") == [("8",)]


@pytest.mark.parametrize("arguments, code, message", [
    (["failures"], 64, "failures: give -c FILE or -d CONNINFO"),
    (["failures", "-c", "x", "-n", "none"], 64, '--limit: "none"'),
    (["failures", "-c", "{}", "-n", "10x"], 64, '--limit: "10x"'),
    (["failures", "-c", "{}", "--queue", "oders"], 64, '/pgcourier.yaml has no queue "oders"; did you mean "orders"? (its queues: orders, others)\n'),
    (["failures", "-c", "{}", "nonsense"], 64, "Too many arguments"),
    (["status", "-c", "{}", "--watch", "--json"], 64, "--watch is for people and --json for programs"),
    (["status", "-c", "{}", "--watch=1us"], 64, "--watch: "),
    (["dead", "retry", "-c", "{}", "--error", "gone%"], 64, 'no dead letter and no closed key with an error like "gone%" in any queue'),
])
def test_wrong_uses_are_said_in_one_line(path, arguments, code, message):
    said = run(*[word.format(path) if word == "{}" else word for word in arguments], code=code)
    assert message in said


def test_an_unknown_queue_is_found_out_without_a_database(tmp_path):
    file = tmp_path / "pgcourier.yaml"
    file.write_text(CONFIG.format(dsn="host=/nowhere"))
    assert run("replay", "--id", "1", "-c", str(file), "--queue", "nothing", code=64) == f'pgcourier: {file} has no queue "nothing" (its queues: orders, others)\n'


def test_failures_of_a_queue_of_anothers_configuration_are_found_by_the_database(db):
    db.query(BURY, {"queue": "elsewhere", "reason": "away", "low": 1, "high": 1})
    assert len(run("failures", "-d", db.operator_dsn, "--queue", "elsewhere").splitlines()) == 2


def test_status_is_watched_until_it_is_interrupted(db, relay):
    one = relay(CONFIG.format(dsn=db.dsn), command="status", arguments=["--watch=100ms"])

    def looks():
        return [line.split()[1] for line in one.log if line.startswith("orders ")]

    wait_until(lambda: "0" in looks(), what="a look")
    db.query("insert into outbox.events (aggregateid) values ('a')")
    wait_until(lambda: looks()[-1] == "1", what="a look at the event")
    one.kill()
    assert one.wait() != 0


def test_a_watch_of_a_terminal_writes_over_its_last_look(db, tmp_path):
    path = tmp_path / "pgcourier.yaml"
    path.write_text(CONFIG.format(dsn=db.dsn))
    ours, its = pty.openpty()
    with subprocess.Popen([binary(), "status", "--watch=100ms", "-c", str(path)], stdin=subprocess.DEVNULL, stdout=its) as watch:
        os.close(its)
        seen = b""
        while seen.count(b"\x1b[H\x1b[Jqueue ") < 2:  # ends with an error when the command ends
            seen += os.read(ours, 4096)
        end_watch(db)
        assert watch.wait(30) == 69
    os.close(ours)


def test_a_watch_ends_with_its_database(db, relay):
    one = relay(CONFIG.format(dsn=db.dsn), command="status", arguments=["--watch"])
    wait_until(lambda: one.log, what="a look")
    end_watch(db)
    assert one.wait() == 69


def end_watch(db):
    db.query("select pg_terminate_backend(pid) from pg_stat_activity"
             " where application_name = 'pgcourier/status' and datname = current_database()")
