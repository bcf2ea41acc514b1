"""How fast into a Redis stream, and to an HTTP receiver, one request an event, over kept connections?"""

from bench import destinations
from bench.drain import Drain, compare


def ask(bench):
    sizes = bench.run.size(((200_000, 20_000), (100_000, 10_000)), ((50_000, 5_000), (30_000, 3_000)))
    answers = []
    for name, destination, size in zip(("Redis", "HTTP"), (destinations.redis, destinations.http), sizes):
        with destination(bench) as to:
            answers.append(compare(bench, Drain(f"drain to {name}", *size, **to), must=0.50, aim=0.80))
    return answers
