"""Reads catalogue.yaml, and prints what a run of it needs: `catalogue.py programs` a regular expression for ctest,
`catalogue.py files` the arguments of pytest."""

import os
import re
import sys
from dataclasses import dataclass, field

import yaml

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "catalogue.yaml")


@dataclass
class Row:
    row: int
    fault: str
    tests: list = field(default_factory=list)
    deep: list = field(default_factory=list)
    note: str = ""
    out: str = ""

    def python(self):
        """[(file under tests/, function)] of those that run now"""
        tests = self.tests + (self.deep if os.environ.get("PGCOURIER_DEEP") == "1" else [])
        return [tuple(test.split("::")) for test in tests if "::" in test]

    def programs(self):
        """[(SUITE.PROGRAM, test)]"""
        return [tuple(test.split(":")) for test in self.tests if "::" not in test]


def load():
    with open(TABLE, encoding="utf-8") as file:
        return [Row(**row) for row in yaml.safe_load(file)]


def main(what):
    rows = load()
    if what == "programs":
        names = sorted({re.escape(program) for row in rows for program, _ in row.programs()})
        print(f"^({'|'.join(names)})$")
    else:
        print("\n".join(sorted({f"tests/{file}::{function}" for row in rows for file, function in row.python()})))


if __name__ == "__main__":
    main(sys.argv[1])
