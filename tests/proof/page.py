"""Writes the catalogue into docs/proof.md, between its two marks: python3 tests/proof/page.py"""

import os
import sys

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, REPO)

from tests.proof import catalogue  # noqa: E402 (the path comes first)

PAGE = os.path.join(REPO, "docs", "proof.md")
BEGIN, END = "<!-- made by tests/proof/page.py from tests/proof/catalogue.yaml -->\n", "<!-- end -->\n"


def shown(test):
    """A link to a Python test's file, or a C test's name and program."""
    if "::" in test:
        file, function = test.split("::")
        return f"[{function}](../tests/{file})"
    program, name = test.split(":")
    return f"{name} (`{program}`)"


def described(row):
    if row.out:
        return f"**left out**: {row.out}"
    tests = "<br>".join([shown(test) for test in row.tests] + [f"{shown(test)} (with `--deep`)" for test in row.deep])
    return f"{tests}<br>*{row.note}*" if row.note else tests


def table():
    rows = catalogue.load()
    held = sum(1 for row in rows if row.tests)
    lines = [f"{held} of {len(rows)} rows have tests.", "", "| # | fault | held by |", "|---|---|---|"]
    lines += [f"| {row.row} | {row.fault} | {described(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def page(text):
    """The page with the table as it must be."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + "\n" + table() + "\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    with open(PAGE, encoding="utf-8") as file:
        old = file.read()
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(page(old))
