"""How long from insert to a line on disk at 1,000 events/s?"""

import os


def ask(bench):
    path = os.path.join(bench.folder, "latency.jsonl")
    return bench.compare_latency("latency to a file", f"file:{path}.floor", f'{{ type: file, path: "{path}" }}')
