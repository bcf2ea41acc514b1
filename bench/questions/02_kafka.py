"""How fast into a Kafka topic of 12 partitions, every event acked by all replicas?"""

from bench import destinations
from bench.drain import Drain, compare


def ask(bench):
    with destinations.kafka(bench) as to:
        drain = Drain("drain to Kafka", *bench.run.size((200_000, 20_000), (50_000, 5_000)), **to)
        return [compare(bench, drain, must=0.65, aim=0.85, note="one broker on the same machine")]
