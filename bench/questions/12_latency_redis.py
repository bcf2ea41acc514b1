"""How long from insert to Redis's answer at 1,000 events/s?"""

from tests.support import servers


def ask(bench):
    with servers.Redis() as redis:
        return bench.compare_latency("latency to Redis", f"redis:{redis.port}", f'{{ type: redis, url: "{redis.url}" }}', "bench")
