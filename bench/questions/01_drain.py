"""How fast does the relay empty a table when delivery costs nothing, and into a file that is on disk before it counts?"""

from bench import destinations
from bench.drain import Drain, compare


def ask(bench):
    with destinations.discard(bench) as to:
        drain = Drain("drain to discard", *bench.run.size((500_000, 50_000), (100_000, 10_000)), **to)
        answers = [compare(bench, drain, must=0.80, aim=0.95)]
    if bench.run.quick:
        return answers
    with destinations.file(bench) as to:
        drain = Drain("drain to a file", 200_000, 20_000, **to)
        return [*answers, compare(bench, drain, note="the floor writes no file")]
