"""The few administrative requests that the tests send to Kafka, by its binary protocol: the broker's own tools are
Java programs and take two seconds to start each."""

import socket
import struct

from tests.support.process import wait_until

CREATE_TOPICS, DELETE_TOPICS, LIST_OFFSETS, METADATA, ALTER_CONFIGS = 19, 20, 2, 3, 33
TOPIC_RESOURCE = 2
LATEST = -1  # in place of a time


class KafkaError(Exception):
    """The broker answered with an error code."""


class _Reader:
    def __init__(self, data):
        self.data = data
        self.at = 0

    def number(self, form):
        (value,) = struct.unpack_from(">" + form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def text(self):
        length = self.number("h")
        if length < 0:
            return None
        self.at += length
        return self.data[self.at - length:self.at].decode()

    def array(self, read_item):
        return [read_item() for _ in range(self.number("i"))]


def _text(value):
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def _receive(connection, count):
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("the broker closed the connection")
        data += part
    return data


def _call(port, api, version, body):
    request = struct.pack(">hhi", api, version, 1) + _text("pgcourier-tests") + body
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (length,) = struct.unpack(">i", _receive(connection, 4))
        return _Reader(_receive(connection, length)[4:])  # after the correlation id


def create_topic(port, name, partitions, settings):
    configs = b"".join(_text(key) + _text(value) for key, value in settings.items())
    topic = _text(name) + struct.pack(">ihi", partitions, 1, 0) + struct.pack(">i", len(settings)) + configs
    reader = _call(port, CREATE_TOPICS, 2, struct.pack(">i", 1) + topic + struct.pack(">ib", 30000, 0))
    reader.number("i")  # throttle time
    for _, code, message in reader.array(lambda: (reader.text(), reader.number("h"), reader.text())):
        if code != 0:
            raise KafkaError(f"cannot create topic {name}: {message} (error {code})")


def alter_topic(port, name, settings):
    """All settings of the topic: those that are left out get their defaults."""
    configs = b"".join(_text(key) + _text(value) for key, value in settings.items())
    topic = struct.pack(">b", TOPIC_RESOURCE) + _text(name) + struct.pack(">i", len(settings)) + configs
    reader = _call(port, ALTER_CONFIGS, 0, struct.pack(">i", 1) + topic + b"\0")
    reader.number("i")  # throttle time
    for code, message, _, _ in reader.array(lambda: (reader.number("h"), reader.text(), reader.number("b"), reader.text())):
        if code != 0:
            raise KafkaError(f"cannot alter topic {name}: {message} (error {code})")


def delete_topic(port, name):
    reader = _call(port, DELETE_TOPICS, 1, struct.pack(">i", 1) + _text(name) + struct.pack(">i", 30000))
    reader.number("i")
    for _, code in reader.array(lambda: (reader.text(), reader.number("h"))):
        if code != 0:
            raise KafkaError(f"cannot delete topic {name}: error {code}")


def _metadata(port, topics):
    """(broker ids, {topic: [leader of each partition]}), by Metadata version 1."""
    body = struct.pack(">i", len(topics)) + b"".join(_text(topic) for topic in topics)
    reader = _call(port, METADATA, 1, body)

    def partition():
        _, _, leader = reader.number("h"), reader.number("i"), reader.number("i")
        reader.array(lambda: reader.number("i"))
        reader.array(lambda: reader.number("i"))
        return leader

    def topic():
        _, name, _ = reader.number("h"), reader.text(), reader.number("b")
        return name, reader.array(partition)

    brokers = reader.array(lambda: (reader.number("i"), reader.text(), reader.number("i"), reader.text()))
    reader.number("i")  # controller
    return [broker[0] for broker in brokers], dict(reader.array(topic))


def end_offsets(port, name, partitions):
    """Of each partition, by ListOffsets version 1."""
    wanted = b"".join(struct.pack(">iq", partition, LATEST) for partition in range(partitions))
    reader = _call(port, LIST_OFFSETS, 1, struct.pack(">ii", -1, 1) + _text(name) + struct.pack(">i", partitions) + wanted)
    offsets = {}

    def partition():
        number, code, _ = reader.number("i"), reader.number("h"), reader.number("q")
        if code != 0:
            raise KafkaError(f"cannot tell the end of {name}, partition {number}: error {code}")
        offsets[number] = reader.number("q")

    reader.array(lambda: (reader.text(), reader.array(partition)))
    return [offsets[number] for number in range(partitions)]


def broker_is_registered(port):
    try:
        return bool(_metadata(port, [])[0])
    except (OSError, struct.error):
        return False


def wait_for_leaders(port, name, partitions):
    def ready():
        leaders = _metadata(port, [name])[1].get(name, [])
        return len(leaders) == partitions and all(leader >= 0 for leader in leaders)

    wait_until(ready, 20, f"leaders for topic {name}")
