"""How long from insert to delivery at 1,000 events/s, when delivery costs nothing?"""


def ask(bench):
    return bench.compare_latency("latency to discard", "discard", "{ type: discard }")
