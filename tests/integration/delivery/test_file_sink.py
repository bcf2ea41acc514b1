"""The file sink in a whole relay: what it has brought to disk when an event counts as delivered."""

import os
import re

import pytest

from tests.support.relay import binary
from tests.support.shop import Shop
from tests.support.targets import FileTarget
from tests.support.traced import TracedRelay, build_gate

SYNC = re.compile(r"\b(fsync|fdatasync)\(\d+<([^>]*)>")


@pytest.mark.parametrize("path", ["{folder}/events.jsonl", "events.jsonl"], ids=["path", "name"])
def test_the_name_of_a_new_file_is_on_disk_before_its_lines_are(db, tmp_path, path):
    """A name alone is one in the relay's working directory."""
    shop, target = Shop(db), FileTarget(path.format(folder=tmp_path))
    shop.add(1, keys=1)
    config = shop.config(target.sink(), **target.queue)
    trace = ["-y", "-e", "trace=fsync,fdatasync"]
    with TracedRelay(config, build_gate(tmp_path), trace, until_empty=True, program=binary(["release"])) as one:
        assert one.wait() == 0
        folder = tmp_path if os.path.isabs(target.path) else one.folder
        with open(one.trace_path, encoding="utf-8") as file:
            synced = SYNC.findall(file.read())
    assert synced == [("fsync", str(folder)), ("fdatasync", f"{folder}/events.jsonl")]
