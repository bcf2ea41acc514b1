"""How fast into a Redis stream, and to an HTTP receiver, one request an event, over kept connections?"""

from bench.drain import Drain, compare
from tests.support import servers


def ask(bench):
    events, keys = bench.run.size((200_000, 20_000), (50_000, 5_000))
    with servers.Redis() as redis, redis.client() as client:
        def received():
            count = client.xlen("bench")
            client.flushall()
            return count

        drain = Drain("drain to Redis", f'{{ type: redis, url: "{redis.url}" }}', events, keys, queue='destination: "bench"',
                      received=received)
        answers = [compare(bench, drain, must=0.50, aim=0.80)]
    with servers.Nginx() as nginx:
        drain = Drain("drain to HTTP", f'{{ type: http, url: "{nginx.url}/in" }}', events, keys)
        return [*answers, compare(bench, drain, must=0.50, aim=0.80, note="nginx that answers 200; 256 connections")]
