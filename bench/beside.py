"""Floors of drains into a real receiver: the loop of DELETE and a bare load generator that sends as many messages of the
same bytes, both at once and with nothing between them. Each gives seconds until both are done."""

import os
import re
import signal
import subprocess
import time
from concurrent import futures

from bench.answer import BenchFailed
from bench.drain import delete_loop
from bench.harness import CONNECTIONS, RUN_TIMEOUT_S, read_sql, run_floor
from tests.support.process import find_program

REDIS_IN_FLIGHT, HTTP_IN_FLIGHT = 1024, 256  # the relay's defaults
PAYLOADS = 10_000  # so many that none comes again within the 64 kB of a partition that lz4 looks back on
EVENT_ID = "3f0e4b4c-7b8e-4d55-9a35-2f6f0a3c9f11"

# What the relay sends of an event besides the payload: docs/sinks/http.md.
POST = """\
wrk.method = "POST"
wrk.body = '{payload}'
wrk.headers["webhook-id"] = "{event_id}"
wrk.headers["webhook-timestamp"] = "1763719200"
wrk.headers["event-id"] = "123456"
wrk.headers["event-key"] = "order-12345"
wrk.headers["event-type"] = "order.changed"
wrk.headers["Content-Type"] = "application/json"
"""


def payload(bench):
    return bench.db.value("select payload::text from filled order by n desc limit 1")


def payloads_path(bench):
    """A file with one in each line, none of them twice."""
    path = os.path.join(bench.folder, "payloads.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{text}\n" for text, in bench.db.query("select payload::text from filled where n < %s", [PAYLOADS]))
    return path


def delete_beside(bench, drain, load):
    """The longer of both times. load() returns its seconds."""
    with futures.ThreadPoolExecutor(1) as pool:
        beside = pool.submit(load)
        return max(delete_loop(bench, drain), beside.result())


def kafka(server, topic):
    def floor(bench, drain):
        rows, seconds = run_floor("kafka", bench.db.superuser_dsn, read_sql("floor_drain.sql"), CONNECTIONS, server.bootstrap,
                                  topic, drain.events, drain.keys, payloads_path(bench))
        if rows != drain.events:
            raise BenchFailed(f"the floor deleted {rows:,.0f} of {drain.events:,} rows")
        return seconds
    return floor


def redis(server, stream):
    """redis-benchmark with one connection and as many commands in flight as the relay: of 1, 2 and 4 connections that
    share them, one is quickest."""
    def floor(bench, drain):
        entry = ["id", "123456", "event_id", EVENT_ID, "type", "order.changed", "key", "order-12345", "payload", payload(bench)]
        command = [find_program("redis-benchmark"), "-p", str(server.port), "-c", "1", "-P", str(REDIS_IN_FLIGHT), "-n", str(drain.events),
                   "--csv", "XADD", stream, "*", *entry]

        def load():
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_TIMEOUT_S)
            if done.returncode != 0:
                raise BenchFailed(f"redis-benchmark ended with {done.returncode}: {done.stdout[-300:]}{done.stderr[-300:]}")
            return drain.events / float(re.findall(r'"([\d.]+)"', done.stdout)[-7])  # rps, and six columns of latency
        return delete_beside(bench, drain, load)
    return floor


def http(server, path):
    """wrk runs for a time, not for a number of requests: it is stopped when nginx has counted as many. Its time begins when it is
    connected, with its first request."""
    def floor(bench, drain):
        script = os.path.join(bench.folder, "post.lua")
        with open(script, "w", encoding="utf-8") as file:
            file.write(POST.format(payload=payload(bench), event_id=EVENT_ID))
        command = [find_program("wrk"), "-t", "1", "-c", str(HTTP_IN_FLIGHT), "-d", str(RUN_TIMEOUT_S), "-s", script, server.url + path]

        def load():
            before, begun = server.requests(), time.monotonic()
            with subprocess.Popen(command, stdout=subprocess.DEVNULL) as wrk:
                try:
                    first = None
                    while (sent := server.requests() - before) < drain.events:
                        if wrk.poll() is not None or time.monotonic() - begun > RUN_TIMEOUT_S:
                            raise BenchFailed("wrk did not send enough requests")
                        if sent and first is None:
                            first = (time.monotonic(), sent)
                        time.sleep(0.005 if first is None else 0.02)
                    return (time.monotonic() - first[0]) * drain.events / (sent - first[1])
                finally:
                    wrk.send_signal(signal.SIGINT)
        return delete_beside(bench, drain, load)
    return floor
