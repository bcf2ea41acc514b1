"""Where drains go: for each sink its configuration, a floor that includes it, and what it has received. Each gives the
arguments of a Drain."""

import contextlib
import os

from bench import beside
from tests.support import servers

TOPIC = "bench"
PARTITIONS = 12
DESTINATION = f'destination: "{TOPIC}"'


@contextlib.contextmanager
def discard(bench):
    del bench
    yield {"sink": "{ type: discard }"}


@contextlib.contextmanager
def file(bench):
    """A file on the disk of the database, synced before each ack."""
    path = os.path.join(bench.folder, "events.jsonl")

    def received():
        if not os.path.exists(path):
            return 0
        with open(path, "rb") as lines:
            count = sum(block.count(b"\n") for block in iter(lambda: lines.read(1 << 20), b""))
        os.unlink(path)
        return count

    yield {"sink": f'{{ type: file, path: "{path}" }}', "received": received}


@contextlib.contextmanager
def kafka(bench):
    """One broker, one topic of 12 partitions."""
    del bench
    with servers.Kafka() as server:
        server.create_topic(TOPIC, PARTITIONS)
        seen = 0

        def received():
            nonlocal seen
            before, seen = seen, server.count(TOPIC, PARTITIONS)
            return seen - before

        yield {"sink": f'{{ type: kafka, properties: {{ bootstrap.servers: "{server.bootstrap}" }} }}', "queue": DESTINATION,
               "floor": beside.kafka(server, TOPIC), "received": received}


@contextlib.contextmanager
def redis(bench):
    """One stream of a server that saves nothing."""
    del bench
    with servers.Redis() as server, server.client() as client:
        def received():
            count = client.xlen(TOPIC)
            client.flushall()
            return count

        yield {"sink": f'{{ type: redis, url: "{server.url}" }}', "queue": DESTINATION, "floor": beside.redis(server, TOPIC),
               "received": received}


@contextlib.contextmanager
def http(bench):
    """An nginx that answers 200 and keeps connections."""
    del bench
    with servers.Nginx() as server:
        seen = 0

        def received():
            nonlocal seen
            before, seen = seen, server.requests()
            return seen - before

        yield {"sink": f'{{ type: http, url: "{server.url}/in" }}', "floor": beside.http(server, "/in"), "received": received}
