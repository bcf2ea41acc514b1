"""How long from insert to Redis's answer at 1,000 events/s?"""

from bench import latency
from tests.support import servers


def ask(bench):
    with servers.Redis() as redis:
        return latency.compare(bench, "latency to Redis", bench.run.size(20, 5), f"redis:{redis.port}",
                               f'{{ type: redis, url: "{redis.url}" }}', 'destination: "bench"')
