"""How fast into a Kafka topic of 12 partitions, every event acked by all replicas?"""

from bench.drain import Drain, compare
from tests.support import servers


def ask(bench):
    with servers.Kafka() as kafka:
        kafka.create_topic("bench", 12)
        sink = f'{{ type: kafka, properties: {{ bootstrap.servers: "{kafka.bootstrap}" }} }}'
        events, keys = bench.run.size((200_000, 20_000), (50_000, 5_000))
        drain = Drain("drain to Kafka", sink, events, keys, queue='destination: "bench"')
        return [compare(bench, drain, must=0.65, aim=0.85, note="one broker on the same machine")]
