"""The four destinations that the proofs deliver to, each with the same face:

    target.sink           its sink, as the inside of a YAML mapping; `options` are more settings of it
    target.queue          settings that the queue needs for it
    target.receipts()     (id, key) of everything it got, in order of receipt within each key
    target.count()        how many receipts there are, cheaply; None when it cannot tell
"""

import json
import os

from tests.support.history import Receipt
from tests.support.http_receiver import Reply


class FileTarget:
    """One file that all relays append to."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "events.jsonl")
        self.queue = {"destination": "orders"}

    def sink(self, **options):
        return _settings({"type": "file", "path": self.path, **options})

    def _lines(self):
        if not os.path.exists(self.path):
            return []
        with open(self.path, "rb") as file:
            return file.read().splitlines()

    def receipts(self):
        return [Receipt(line["id"], line["key"]) for line in map(_whole, self._lines()) if line]

    def count(self):
        return len(self._lines())


def _whole(line):
    """A line as an object, or None when a killed relay left it torn."""
    try:
        return json.loads(line)
    except ValueError:
        return None


class RedisTarget:
    """One stream."""

    stream = "orders"

    def __init__(self, server):
        self.server = server
        self.client = server.client()
        self.queue = {"destination": self.stream}

    def sink(self, **options):
        return _settings({"type": "redis", "url": self.server.url, "command": "stream", **options})

    def receipts(self):
        return [Receipt(int(fields[b"id"]), fields[b"key"].decode() if b"key" in fields else None)
                for _, fields in self.client.xrange(self.stream)]

    def count(self):
        return self.client.xlen(self.stream)


class HttpTarget:
    """A receiver that answers 200, but for the keys in `refused_keys`, which get `refusal`."""

    def __init__(self, receiver):
        self.receiver = receiver
        receiver.keep_bodies = False
        self.queue = {}
        self.refused_keys = set()
        self.refusal = Reply(500)
        self._refused = set()
        receiver.rule(lambda request: request.headers.get("event-key") in self.refused_keys, self._refuse)

    def _refuse(self, request):
        self._refused.add(request.number)
        return self.refusal

    def sink(self, **options):
        return _settings({"type": "http", "url": self.receiver.url + "/in", **options})

    def receipts(self):
        return [Receipt(int(request.headers["event-id"]), request.headers.get("event-key"))
                for request in list(self.receiver.requests) if request.number not in self._refused]

    def requests_of(self, key):
        """The ids that were sent under the key, refused or not."""
        return [int(request.headers["event-id"]) for request in list(self.receiver.requests)
                if request.headers.get("event-key") == key]

    def received_at(self):
        """{id: time.monotonic()} of the first request for each event."""
        times = {}
        for request in list(self.receiver.requests):
            times.setdefault(int(request.headers["event-id"]), request.received_at)
        return times

    def count(self):
        return len(self.receiver.requests)


class KafkaTarget:
    """A topic. Order of receipt is a partition's order, so a key must stay in its partition."""

    def __init__(self, broker, topic):
        self.broker = broker
        self.topic = topic
        self.queue = {"destination": topic}

    def sink(self, **options):
        return _settings({"type": "kafka", "properties": f"{{ bootstrap.servers: \"{self.broker.bootstrap}\" }}", **options})

    def receipts(self):
        records = self.broker.consume(self.topic)
        partitions = {}
        for record in records:
            if record.key is not None:
                partitions.setdefault(record.key, set()).add(record.partition)
        strayed = {key: found for key, found in partitions.items() if len(found) > 1}
        assert not strayed, f"keys in several partitions: {strayed}"
        return [Receipt(int(dict(record.headers)["id"]), record.key.decode() if record.key is not None else None)
                for record in records]

    def count(self):
        return None


def _settings(settings):
    return ", ".join(f"{name}: {value if str(value).startswith('{') else json.dumps(value)}"
                     for name, value in settings.items())
