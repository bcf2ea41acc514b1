"""rendered("claim", "claim_peek.sql", state="outbox", ...) -> a statement of sql/ without its comments, ready for PREPARE."""

import os
import re

from tests.support.process import REPO


def rendered(folder, name, **names):
    with open(os.path.join(REPO, "sql", folder, name), encoding="utf-8") as file:
        text = "".join(line for line in file if not line.lstrip().startswith("--"))
    return re.sub(r"::|:([a-z_]+)", lambda found: names[found[1]] if found[1] else "::", text)
