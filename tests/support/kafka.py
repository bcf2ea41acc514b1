"""A real Kafka broker: one node, KRaft, no ZooKeeper, on loopback."""

import fcntl
import hashlib
import json
import os
import signal
import subprocess
from dataclasses import dataclass

from tests.support import kafka_wire
from tests.support.process import REPO, Process, Server, ServerError, accepts, find_program, free_port

POM = os.path.join(REPO, "tests", "support", "kafka", "pom.xml")
COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
CLUSTER_ID = "cGdjb3VyaWVyLXRlc3RzMQ"

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=BROKER://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=BROKER://127.0.0.1:{port}
listener.security.protocol.map=BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=BROKER
controller.listener.names=CONTROLLER
log.dirs={data}
num.partitions=12
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
log.cleaner.enable=false
controlled.shutdown.enable=false
# A killed broker may register again only when its last session has expired: 9 s by default.
broker.session.timeout.ms=1000
broker.heartbeat.interval.ms=200
"""


@dataclass
class Record:
    """One message as a consumer sees it; key and value are exact bytes, None for null."""

    partition: int
    offset: int
    key: bytes
    value: bytes
    headers: list  # of (name, value)
    timestamp_ms: int = None

    def json(self):
        return json.loads(self.value)


def fetch_jars():
    """The folder with the broker's jars, fetched from Maven Central once. PGCOURIER_CACHE moves the cache."""
    with open(POM, "rb") as pom:
        version = hashlib.sha256(pom.read()).hexdigest()[:12]
    cache = os.environ.get("PGCOURIER_CACHE", os.path.join(REPO, ".cache"))
    folder = os.path.join(cache, f"kafka-{version}")
    os.makedirs(cache, exist_ok=True)
    with open(os.path.join(cache, "kafka.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(folder):
            _download(folder)
    return folder


def _download(folder):
    partial = folder + ".partial"
    command = [find_program("mvn"), "-B", "-q", "-f", POM, COPY_GOAL, f"-DoutputDirectory={partial}", "-DincludeScope=runtime"]
    print("fetching the Kafka test broker from Maven Central", flush=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServerError(f"cannot fetch the Kafka test broker (is Maven Central reachable?)\n{done.stdout}{done.stderr}")
    os.rename(partial, folder)


class Kafka(Server):
    """Kafka(settings={"message.max.bytes": 2000}) -> a started-on-enter broker; topics are created by create_topic()
    only. stop() and kill() keep the data for the next start()."""

    name = "kafka"
    start_timeout_s = 180.0

    def __init__(self, settings=None):
        super().__init__()
        self.jars = fetch_jars()
        self.port, self.controller_port = free_port(), free_port()
        self.config = os.path.join(self.folder, "server.properties")
        text = PROPERTIES.format(port=self.port, controller_port=self.controller_port, data=os.path.join(self.folder, "data"))
        text += "".join(f"{name}={value}\n" for name, value in (settings or {}).items())
        with open(self.config, "w") as file:
            file.write(text)
        done = subprocess.run(self._java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", self.config),
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ServerError(f"cannot format Kafka's storage\n{done.stdout}{done.stderr}")

    @property
    def bootstrap(self):
        return f"127.0.0.1:{self.port}"

    def _java(self, *arguments):
        # Flags for a JVM that lives a minute: the quick compiler only, no parallel collector.
        return [find_program("java"), "-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
                f"-Djava.io.tmpdir={self.folder}",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", os.path.join(self.jars, "*"), *arguments]

    def _launch(self):
        return Process(self._java("kafka.Kafka", self.config), self.log_path, cwd=self.folder)

    def _answers(self):
        # The port opens before the broker has a controller; then it names itself in its metadata.
        return accepts(self.port) and kafka_wire.broker_is_registered(self.port)

    def create_topic(self, name, partitions=12, **config):
        """config: topic settings with _ for . as in max_message_bytes=1000. Returns when every partition has a leader."""
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        kafka_wire.create_topic(self.port, name, partitions, settings)
        kafka_wire.wait_for_leaders(self.port, name, partitions)

    def alter_topic(self, name, **config):
        """As for create_topic(); what is left out gets its default."""
        kafka_wire.alter_topic(self.port, name, {key.replace("_", "."): str(value) for key, value in config.items()})

    def delete_topic(self, name):
        kafka_wire.delete_topic(self.port, name)

    def count(self, topic, partitions=12):
        """How many records have been written to it, outside of transactions."""
        return sum(kafka_wire.end_offsets(self.port, topic, partitions))

    def consume(self, topic):
        """All records of a topic, in offset order within each partition."""
        exact = self._consume_exact(topic)
        rest = self._consume_rest(topic)
        records = [Record(*where, key, value, *rest.get(where, ([], None))) for where, (key, value) in exact.items()]
        return sorted(records, key=lambda record: (record.partition, record.offset))

    def _kcat(self, topic, *arguments):
        command = [find_program("kcat"), "-b", self.bootstrap, "-C", "-t", topic, "-e", "-q", "-o", "beginning",
                   "-X", "fetch.wait.max.ms=10", "-X", "check.crcs=true", *arguments]
        done = subprocess.run(command, capture_output=True, timeout=120, check=False)
        if done.returncode != 0:
            raise ServerError(f"kcat: {done.stderr.decode(errors='replace')}")
        return done.stdout

    def _consume_exact(self, topic):
        """{(partition, offset): (key, value)}, read by length: kcat's JSON damages bytes that are not UTF-8."""
        output = self._kcat(topic, "-f", "%p %o %K %S\n%k%s")
        found, at = {}, 0
        while at < len(output):
            end = output.index(b"\n", at)
            partition, offset, key_length, value_length = (int(part) for part in output[at:end].split())
            at = end + 1
            key, at = _take(output, at, key_length)
            value, at = _take(output, at, value_length)
            found[partition, offset] = (key, value)
        return found

    def _consume_rest(self, topic):
        """{(partition, offset): ([(name, value)], timestamp)}, from kcat's JSON, the one form that keeps headers apart."""
        found = {}
        for line in self._kcat(topic, "-J").splitlines():
            message = json.loads(line.decode(errors="replace"))
            flat = message.get("headers", [])
            found[message["partition"], message["offset"]] = list(zip(flat[::2], flat[1::2])), message.get("ts")
        return found

    def stop(self):
        """An orderly stop. A lone controller waits long for nobody, so it gets a few seconds only."""
        if self.process:
            self.process.end(signal.SIGTERM, 8.0)


def _take(output, at, length):
    if length < 0:
        return None, at
    return output[at:at + length], at + length
