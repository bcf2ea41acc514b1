"""Journals: files of JSON lines that producers, sinks and whoever injects faults append to, from any process.

A line is one write(2) to a file opened for appending, so lines of several processes never mix. A process that is killed
can leave its last line torn; a reader takes it for something that did not happen."""

import hashlib
import itertools
import json
import os

CHUNK = 4096  # lines parsed by one call of json.loads: three times as fast as one by one


class Journal:
    def __init__(self, path):
        self.path = os.fspath(path)
        self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def append(self, record):
        """A dict, or a record of tests/support/history.py; what is None is left out, but for the key."""
        fields = record if isinstance(record, dict) else record._asdict()
        told = {name: value for name, value in fields.items() if value is not None or name == "key"}
        line = json.dumps(told, separators=(",", ":"))
        os.write(self._fd, line.encode() + b"\n")

    def close(self):
        os.close(self._fd)


def read_lines(path):
    """The objects of a file of JSON lines. A last line without its end is left out; any other broken line is an error.

    Of a file that grows meanwhile the last line may be there in part, and the rest of it a moment later."""
    torn = False
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        while not torn and (chunk := list(itertools.islice(file, CHUNK))):
            torn = not chunk[-1].endswith("\n")
            yield from json.loads(f"[{','.join(chunk[:-1] if torn else chunk)}]")


def digest(payload):
    """What stands for a payload in the journals; None, the payload that is not there, differs from an empty one."""
    return "none" if payload is None else hashlib.sha256(payload).hexdigest()[:16]
