"""The test servers themselves: each starts, answers, stops, comes back, and leaves nothing behind; and what a fault run
excuses."""

import http.client as http_client
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone

import pytest

from tests.support import servers
from tests.support.fault_run import FaultRun
from tests.support.history import Fault
from tests.support.process import REPO, exit_on_signals, wait_until
from tests.support.targets import FileTarget


def gone(pid):
    return not os.path.exists(f"/proc/{pid}")


def left_nothing(server, pid):
    return gone(pid) and not os.path.exists(server.folder)


def test_postgres_keeps_its_data_over_a_crash_and_leaves_nothing():
    with servers.Postgres() as server:
        pid = server.pid
        database = server.create_database()
        database.query("CREATE TABLE kept AS SELECT 7 AS n")
        database.query("CHECKPOINT")
        server.kill()
        server.start()
        assert database.value("SELECT n FROM kept") == 7
        assert database.psql("SELECT 1;\nSELECT 2;") == "1\n2\n"
    assert left_nothing(server, pid) and gone(server.pid)


def test_postgres_takes_an_encoding_and_settings():
    with servers.Postgres(settings={"max_connections": "20"}, encoding="SQL_ASCII") as server:
        assert server.query("SHOW server_encoding") == [("SQL_ASCII",)]
        assert server.query("SHOW max_connections") == [("20",)]


def test_postgres_may_be_of_another_release_and_be_migrated(db_of):
    database = db_of(18)
    assert database.value("show server_version").startswith("18.")
    assert database.psql("select count(*) from outbox.events") == "0\n"


def test_each_test_gets_its_own_database(empty_db):
    empty_db.query("CREATE TABLE mine (id int)")
    other = empty_db.server.create_database()
    assert other.value("SELECT to_regclass('mine')") is None
    other.drop()


def test_redis_loses_its_data_when_killed_and_comes_back():
    with servers.Redis() as server:
        pid = server.pid
        server.client().set("a", "1")
        server.kill()
        server.start()
        assert server.client().get("a") is None
    assert left_nothing(server, pid) and gone(server.pid)


def test_a_paused_redis_does_not_answer(redis):
    import redis as library

    redis.pause()
    with pytest.raises(library.TimeoutError):
        redis.client(socket_timeout=0.2).ping()
    redis.resume()
    assert redis.client().ping()


def produce(kafka, topic, lines, *options):
    command = ["kcat", "-b", kafka.bootstrap, "-P", "-t", topic, "-K:", *options]
    subprocess.run(command, input=b"\n".join(lines), check=True, timeout=30)


def test_kafka_gives_back_keys_values_and_headers_byte_for_byte(kafka, topic):
    produce(kafka, topic, [b"k1:\xff\xfe{}", b"k2:plain"], "-H", "trace=a,b", "-H", "type=x")
    records = {record.key: record for record in kafka.consume(topic)}
    assert records[b"k1"].value == b"\xff\xfe{}"
    assert records[b"k2"].headers == [("trace", "a,b"), ("type", "x")]


def test_kafka_keeps_its_records_over_a_kill(kafka, topic):
    produce(kafka, topic, [b"k%d:v" % n for n in range(100)])
    kafka.kill()
    kafka.start()
    assert len(kafka.consume(topic)) == 100


def post(url, body):
    with urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=5) as answer:
        return answer.status


def test_the_http_receiver_follows_its_rules_in_order(http):
    http.rule(lambda request: request.body == b"bad", servers.Reply(503), times=1)
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(http.url, b"bad")
    assert refused.value.code == 503
    assert post(http.url, b"bad") == 200
    assert [request.body for request in http.requests] == [b"bad", b"bad"]


@pytest.mark.parametrize("action", [servers.DROP, servers.HALF])
def test_the_http_receiver_breaks_off_when_told_to(http, action):
    http.respond = lambda request: servers.Reply(200, body=b"x" * 1000, action=action)
    with pytest.raises((OSError, http_client.HTTPException)):
        with urllib.request.urlopen(urllib.request.Request(http.url, data=b"a"), timeout=5) as answer:
            answer.read()
    assert len(http.requests) == 1


def test_a_stopped_http_receiver_refuses_connections_and_comes_back(http):
    http.stop()
    with pytest.raises(urllib.error.URLError):
        post(http.url, b"a")
    http.start()
    assert post(http.url, b"b") == 200


def test_pgbouncer_passes_transactions_on(pg, db):
    import psycopg2

    with servers.PgBouncer(pg) as pool:
        pid = pool.pid
        connection = psycopg2.connect(pool.dsn(db.name))
        with connection, connection.cursor() as cursor:
            cursor.execute("SELECT current_database()")
            assert cursor.fetchone() == (db.name,)
        connection.close()
    assert left_nothing(pool, pid)


def test_nginx_answers():
    with servers.Nginx() as server:
        assert post(server.url, b"x") == 200
        pid = server.pid
    assert left_nothing(server, pid)


ORPHAN_MAKER = """
import sys, time
from tests.support import servers
started = [servers.Postgres().start(), servers.Redis().start(), servers.Nginx().start()]
print(*(server.pid for server in started), flush=True)
print(*(server.folder for server in started), flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_server_outlives_the_program_that_started_it(number, tmp_path):
    env = {**os.environ, "PYTHONPATH": REPO, "TMPDIR": str(tmp_path)}
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:  # pytest's folders are closed to the account that runs PostgreSQL
        if parent.stat().st_mode & 0o005 != 0o005:
            parent.chmod(0o755)
    program = subprocess.Popen([sys.executable, "-c", ORPHAN_MAKER], stdout=subprocess.PIPE, text=True, env=env,
                               stderr=subprocess.DEVNULL)
    try:
        pids = program.stdout.readline().split()
        assert len(pids) == 3
        program.send_signal(number)
        program.wait(20)
    finally:
        program.kill()
    wait_until(lambda: all(gone(pid) for pid in pids), 10, "the servers to end")
    if number == signal.SIGINT:
        assert not list(tmp_path.glob("pgcourier-*"))


def test_each_test_gets_the_outbox_schema(db):
    assert db.value("SELECT to_regclass('outbox.events')::text") == "outbox.events"


def test_a_relay_that_ends_at_once_leaves_its_message_and_exit_code(relay):
    one = relay("queues: 7\n")
    assert one.wait() not in (0, 99)  # 99: a sanitizer's report
    assert one.exit_code == one.wait()
    assert one.logged("^pgcourier: ")


def test_waiting_is_bounded():
    start = time.monotonic()
    with pytest.raises(TimeoutError, match="the impossible"):
        wait_until(lambda: False, 0.05, "the impossible")
    assert time.monotonic() - start < 5


def test_signals_stay_as_they_are_where_another_thread_runs_the_tests():
    before = signal.getsignal(signal.SIGTERM)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(exit_on_signals).result()
    assert signal.getsignal(signal.SIGTERM) is before


class Said:
    """As much of a relay as a FaultRun asks when it is over. lines: what it has logged."""

    def __init__(self, lines=()):
        self.lines = list(lines)

    def logged(self, pattern):
        return [line for line in self.lines if re.search(pattern, line)]

    def lose(self, events, after_s=0):
        at = datetime.fromtimestamp(time.time() + after_s, timezone.utc).isoformat(timespec="milliseconds")
        self.lines.append(f"{at.replace('+00:00', 'Z')} level=warn msg=claim.lost queue=shop events={events} in_flight=1")


def test_a_lost_claim_is_its_relays_and_no_older_than_the_harm_that_was_done(tmp_path):
    target = FileTarget(tmp_path / "events.jsonl")
    run = FaultRun(None, None, target)
    run.relays = [Said(), Said()]
    (tmp_path / "events.jsonl").write_text("{}\n{}\n")
    run.harm()
    run.relays[1].lose(7)
    first, = run.lost_claims()
    assert first == Fault("claim lost", 7, "relay-2", receipts=2, at=run.harms[0]["at"])
    (tmp_path / "events.jsonl").write_text("{}\n{}\n{}\n")
    run.harm()
    run.relays[0].lose(4, after_s=1)  # of the second, or of the first that it was slow to notice
    run.relays[0].lose(5, after_s=60)
    assert [(fault.in_flight, fault.receipts) for fault in run.lost_claims()] == [(4, 2), (5, 3), (7, 2)]


def test_a_claim_that_is_lost_before_any_harm_is_not_excused(tmp_path):
    run = FaultRun(None, None, FileTarget(tmp_path / "events.jsonl"))
    run.relays = [Said()]
    run.relays[0].lose(1, after_s=-1)
    run.harm()
    with pytest.raises(AssertionError, match="what harm was done"):
        run.lost_claims()


def test_a_torn_line_is_excused_by_what_may_have_torn_it_alone(tmp_path):
    target = FileTarget(tmp_path / "events.jsonl")
    whole = b'{"id": %d, "key": "k", "attempt": 1, "payload": "{}"}\n'
    (tmp_path / "events.jsonl").write_bytes(whole % 1 + b'{"id": 2, "ke\n' + whole % 2 + b'{"id": 3')
    for _ in range(2):
        with pytest.raises(AssertionError, match="2 lines are torn"):
            target.receipts()
        target.may_tear()
    assert [receipt.id for receipt in target.receipts()] == [1, 2]
