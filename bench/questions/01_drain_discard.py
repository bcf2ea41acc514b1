"""How fast does a relay empty a table when delivery costs nothing?"""


def ask(bench):
    return [bench.compare_drain("drain to discard", "{ type: discard }")]
