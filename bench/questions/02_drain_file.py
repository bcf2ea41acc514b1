"""How fast into a file, each batch on disk before it counts?"""

import os


def ask(bench):
    path = os.path.join(bench.folder, "events.jsonl")

    def received():
        with open(path, "rb") as file:
            lines = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
        os.unlink(path)
        return lines

    return [bench.compare_drain("drain to a file", f'{{ type: file, path: "{path}" }}', check=received)]
