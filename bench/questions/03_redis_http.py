"""How fast into a Redis stream, and to an HTTP receiver, one request an event, over kept connections?"""

from dataclasses import replace

from bench import destinations
from bench.drain import Drain, compare


def ask(bench):
    sizes = bench.run.size(((200_000, 20_000), (100_000, 10_000)), ((50_000, 5_000), (30_000, 3_000)))
    answers = []
    for name, destination, size in zip(("Redis", "HTTP"), (destinations.redis, destinations.http), sizes):
        with destination(bench) as to:
            drain = Drain(f"drain to {name}", *size, **to)
            answers.append(compare(bench, drain, must=0.50, aim=0.80))
            if name == "HTTP" and not bench.run.quick:  # where one relay's thread is what there is too little of
                answers.append(compare(bench, replace(drain, question=f"{drain.question}, two relays", relays=2)))
    return answers
