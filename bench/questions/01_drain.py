"""How fast does the relay empty a table when delivery costs nothing, and into a file that is on disk before it counts?"""

import os

from bench.drain import Drain, compare


def ask(bench):
    path = os.path.join(bench.folder, "events.jsonl")

    def received():
        if not os.path.exists(path):
            return 0
        with open(path, "rb") as file:
            lines = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
        os.unlink(path)
        return lines

    events, keys = bench.run.size((500_000, 50_000), (100_000, 10_000))
    discard = Drain("drain to discard", "{ type: discard }", events, keys)
    file = Drain("drain to a file", f'{{ type: file, path: "{path}" }}', *bench.run.size((200_000, 20_000), (50_000, 5_000)),
                 received=received)
    return [compare(bench, discard, must=0.80, aim=0.95), compare(bench, file, note="the floor writes no file")]
