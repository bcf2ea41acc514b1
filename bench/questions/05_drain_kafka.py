"""How fast into a Kafka topic of 12 partitions?"""

from tests.support import servers


def ask(bench):
    with servers.Kafka() as kafka:
        kafka.create_topic("bench", 12)
        sink = f'{{ type: kafka, properties: {{ bootstrap.servers: "{kafka.bootstrap}" }} }}'
        return [bench.compare_drain("drain to Kafka", sink, "bench", note="one broker on the same machine")]
