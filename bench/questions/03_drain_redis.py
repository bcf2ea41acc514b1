"""How fast into a Redis stream?"""

from tests.support import servers


def ask(bench):
    with servers.Redis() as redis, redis.client() as client:
        def received():
            count = client.xlen("bench")
            client.flushall()
            return count

        return [bench.compare_drain("drain to Redis", f'{{ type: redis, url: "{redis.url}" }}', "bench", check=received)]
