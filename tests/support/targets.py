"""The five destinations that the proofs deliver to, each with the same face:

    target.sink           its sink, as the inside of a YAML mapping; `options` are more settings of it
    target.queue          settings that the queue needs for it
    target.receipts()     everything it got, as the history check wants it
    target.count()        how many receipts there are, cheaply; None when it cannot tell
    target.may_tear()     to be told before each fault that may end a process in the middle of a write

sink(relay=NAME) makes the receipts tell which relay they are from, where the destination can tell that (HTTP). They tell
when they came: HTTP always, Redis and Kafka if timed=True."""

import base64
import itertools
import json
import os
import time

from tests.support.history import Receipt
from tests.support.http_receiver import ANSWER, CLOSE, Reply
from tests.support.journal import digest


class Target:
    writers = 1  # how many writes of one relay may be under way
    patience = {}  # the settings with which it is waited for, however busy the machine is

    def __init__(self):
        self.torn_most = 0  # lines

    def may_tear(self):
        self.torn_most += self.writers


class FileTarget(Target):
    """One file that all relays append to. options: settings that its sink has from now on."""

    def __init__(self, path, **options):
        super().__init__()
        self.path = os.fspath(path)
        self.options = options
        self.queue = {"destination": "orders"}

    def sink(self, relay=None, **options):
        return _settings({"type": "file", "path": self.path, **self.options, **options})

    def _read(self):
        if not os.path.exists(self.path):
            return b""
        with open(self.path, "rb") as file:
            return file.read()

    def receipts(self):
        lines = self._read().splitlines()
        whole = [_whole(line) for line in lines]
        torn = [line for line, read in zip(lines, whole) if read is None]
        assert len(torn) <= self.torn_most, f"{len(torn)} lines are torn, and {self.torn_most} may be, first: {torn[0]!r}"
        return [Receipt(line["id"], line["key"], attempt=line["attempt"], hash=digest(_payload_of(line)), at=at)
                for line, at in zip(whole, self.times()) if line]

    def times(self):
        """When each of the lines came: here, nobody knows."""
        return itertools.repeat(None)

    def count(self):
        return self._read().count(b"\n")


def _whole(line):
    """A line as an object, or None when it is torn."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def _payload_of(line):
    if "payload_base64" in line:
        return base64.b64decode(line["payload_base64"])
    return None if line["payload"] is None else line["payload"].encode()


class ExecTarget(FileTarget):
    """One file that commands append to, `batch` events each at most. A cat writes all of a batch at once, as others must
    that share the file. A relay that is killed takes its commands with it."""

    writers = 8  # the sink's `processes`

    def sink(self, relay=None, **options):
        command = ["sh", "-c", 'exec cat >> "$$1"', "sh", self.path]
        return _settings({"type": "exec", "command": command, **self.options, **options})


class RedisTarget(Target):
    """One stream."""

    stream = "orders"

    def __init__(self, server, timed=False):
        super().__init__()
        self.server = server
        self.timed = timed
        self.client = server.client()
        self.queue = {"destination": self.stream}

    def sink(self, relay=None, **options):
        return _settings({"type": "redis", "url": self.server.url, "command": "stream", **options})

    def receipts(self):
        ahead_s = _wall_ahead_s()
        return [Receipt(int(fields[b"id"]), fields[b"key"].decode() if b"key" in fields else None,
                        hash=digest(fields.get(b"payload")),
                        at=_monotonic(int(entry.split(b"-")[0]), ahead_s) if self.timed else None)
                for entry, fields in self.client.xrange(self.stream)]

    def count(self):
        return self.client.xlen(self.stream)


# Answers that are not about the event: the receiver is overloaded, out of reach or set up wrongly.
NOT_THE_EVENTS_FAULT = {401, 403, 404, 405, 407, 408, 410, 421, 425, 426, 429, 502, 503, 504, 507, 511, 529}


class HttpTarget(Target):
    """A receiver that answers 200, but for the keys in `refused_keys`, which get `refusal`."""

    patience = {"timeout": "5m"}

    def __init__(self, receiver):
        super().__init__()
        self.receiver = receiver
        receiver.keep_bodies = False
        self.queue = {}
        self.refused_keys = set()
        self.refusal = Reply(500)
        receiver.rule(lambda request: request.headers.get("event-key") in self.refused_keys, lambda request: self.refusal)

    def linger(self):
        """Takes 5 ms for every fourth answer: two relays in one key at once would meet."""
        self.receiver.respond = lambda request: Reply(delay_s=0.005) if request.number % 4 == 0 else None

    def sink(self, relay=None, **options):
        url = f"{self.receiver.url}/in/{relay}" if relay else f"{self.receiver.url}/in"
        return _settings({"type": "http", "url": url, **options})

    def receipts(self):
        return http_receipts(self.receiver)

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


def http_receipts(receiver):
    """What the receiver was sent, for the history check. An empty body may be a payload that is not there, so it is not judged."""
    return [Receipt(int(request.headers["event-id"]), request.headers.get("event-key"), _answer_to(request),
                    _relay_of(request), None, request.hash, request.received_at, request.answered_at)
            for request in list(receiver.requests)]


def _relay_of(request):
    return request.target.removeprefix("/in/") if request.target.startswith("/in/") else None


def _answer_to(request):
    """What the history check calls it. A receiver that answers nothing has taken the event all the same."""
    reply = request.reply
    if request.answered_at is None or reply.action not in (ANSWER, CLOSE):
        return "late" if request.answered_at is not None else "silent"
    if reply.raw is not None:
        return "late"
    if 200 <= reply.status < 300:
        return "ack"
    if reply.status in NOT_THE_EVENTS_FAULT:
        return "away"
    return "reject" if 400 <= reply.status < 500 and reply.status not in (409, 423) else "refuse"


class KafkaTarget(Target):
    """A topic. Order of receipt is a partition's order, so a key must stay in its partition. timed: it is the broker that
    gives its records their times, by message.timestamp.type=LogAppendTime."""

    def __init__(self, broker, topic, timed=False):
        super().__init__()
        self.broker = broker
        self.topic = topic
        self.timed = timed
        self.queue = {"destination": topic}

    def sink(self, relay=None, **options):
        return _settings({"type": "kafka", "properties": f"{{ bootstrap.servers: \"{self.broker.bootstrap}\" }}", **options})

    def receipts(self):
        records, ahead_s = self.broker.consume(self.topic), _wall_ahead_s()
        partitions = {}
        for record in records:
            if record.key is not None:
                partitions.setdefault(record.key, set()).add(record.partition)
        strayed = {key: found for key, found in partitions.items() if len(found) > 1}
        assert not strayed, f"keys in several partitions: {strayed}"
        return [Receipt(int(dict(record.headers)["id"]), record.key.decode() if record.key is not None else None,
                        hash=digest(record.value), at=_monotonic(record.timestamp_ms, ahead_s) if self.timed else None)
                for record in records]

    def count(self):
        return None


def _wall_ahead_s():
    """To be asked once for all receipts: it is a little different every time, and what came in one millisecond must not
    change places."""
    return time.time() - time.monotonic()


def _monotonic(wall_ms, ahead_s):
    """What time.monotonic() was then, or a millisecond later: servers cut off what is below."""
    return (wall_ms + 1) / 1000 - ahead_s


def _settings(settings):
    return ", ".join(f"{name}: {value if str(value).startswith('{') else json.dumps(value)}"
                     for name, value in settings.items())
