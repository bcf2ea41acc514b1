"""The sinks of a chaos run, each a server of its own that keeps what it has acknowledged."""

import os
import threading
import time
from contextlib import contextmanager

from tests.support.chaos.fleet import SINK_IN_FLIGHT
from tests.support.http_receiver import HttpReceiver
from tests.support.kafka import Kafka
from tests.support.process import wait_until
from tests.support.proxy import Proxy
from tests.support.redis_server import Redis
from tests.support.targets import FileTarget, HttpTarget, KafkaTarget, RedisTarget

SINK_TIMEOUT = "30s"  # longer than anything holds a sink up, but for late answers
COMMON = {"max_in_flight": SINK_IN_FLIGHT}


@contextmanager
def open_sink(name, folder):
    """(target, its server, (port behind the ways to it, the one way that is shared), settings): settings(way, relay's name)
    is the inside of a sink's YAML mapping."""
    with SINKS[name](folder) as opened:
        yield opened


@contextmanager
def _http(_folder):
    with HttpReceiver() as receiver:
        target = HttpTarget(receiver)
        target.linger()
        yield target, receiver, (receiver.port, None), lambda way, relay: target.sink(
            relay, url=f"http://127.0.0.1:{way.port}/in/{relay}", timeout=SINK_TIMEOUT, connect_timeout=SINK_TIMEOUT, **COMMON)


@contextmanager
def _redis(_folder):
    """It writes every command to its log before it answers."""
    with Redis(settings={"appendonly": "yes", "appendfsync": "always"}) as server:
        target = RedisTarget(server, timed=True)
        yield target, server, (server.port, None), lambda way, relay: target.sink(
            relay, url=f"redis://127.0.0.1:{way.port}/0", timeout=SINK_TIMEOUT, **COMMON)


@contextmanager
def _kafka(_folder):
    """The broker tells its clients where to find it: by way of the proxy, kcat among them."""
    way = Proxy(0)
    broker = Kafka({"advertised.listeners": f"BROKER://127.0.0.1:{way.port}"})
    broker.start_timeout_s = 300  # with everything else going on
    with broker:
        way.peer_port = broker.port
        with way:
            broker.create_topic("orders", 12, message_timestamp_type="LogAppendTime")
            target = KafkaTarget(broker, "orders", timed=True)
            properties = f'{{ bootstrap.servers: "127.0.0.1:{way.port}" }}'
            yield target, broker, (None, way), lambda _way, relay: target.sink(
                relay, properties=properties, down_after="5s", **COMMON)


class WatchedFile(FileTarget):
    """A line tells no time, so somebody has to watch the file grow."""

    def __init__(self, path):
        super().__init__(path, sync=False)
        self._seen = []  # time.monotonic() at which so many lines were there first, or soon after
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watched-file")

    def _watch(self):
        """From the last whole line on: half a line may be taken back."""
        end = 0
        while not self._over.wait(0.02):
            if os.path.exists(self.path):
                with open(self.path, "rb") as file:
                    file.seek(end)
                    data = file.read()
                end += data.rfind(b"\n") + 1
                self._seen += [time.monotonic()] * data.count(b"\n")

    def count(self):
        return len(self._seen)

    def times(self):
        lines = self._read().count(b"\n")
        wait_until(lambda: len(self._seen) >= lines, 20, "the file to be watched to its end")
        return list(self._seen)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()


@contextmanager
def _file(folder):
    with WatchedFile(os.path.join(folder, "events.jsonl")) as target:
        yield target, None, (None, None), lambda _way, relay: target.sink(relay, **COMMON)


SINKS = {"http": _http, "redis": _redis, "kafka": _kafka, "file": _file}
