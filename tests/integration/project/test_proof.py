"""The catalogue of faults names tests that exist, and the page shows the catalogue."""

import glob
import os
import re

from tests.proof import catalogue, page
from tests.support.process import REPO

ROWS = 71


def read(*parts):
    path = os.path.join(REPO, *parts)
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8") as file:
        return file.read()


def test_every_row_has_tests_or_a_reason_to_have_none():
    rows = catalogue.load()
    assert [row.row for row in rows] == list(range(1, ROWS + 1))
    assert [row.row for row in rows if bool(row.tests) == bool(row.out)] == []


def test_every_test_of_the_catalogue_exists(monkeypatch):
    monkeypatch.setenv("PGCOURIER_DEEP", "1")
    missing = []
    for row in catalogue.load():
        missing += [f"{row.row}: {file}::{function}" for file, function in row.python()
                    if not re.search(rf"^def {function}\(", read("tests", file), re.MULTILINE)]
        for program, test in row.programs():
            suite, name = program.split(".")
            (path,) = glob.glob(os.path.join(REPO, "tests", suite, "**", f"{name}_test.c"), recursive=True)
            source = read(path)
            if suite == "contract":  # what every sink must do
                source += read("tests", "contract", "sink_contract.c")
            if f"START_TEST({test})" not in source:
                missing.append(f"{row.row}: {program}:{test}")
    assert missing == []


def test_the_page_shows_the_catalogue():
    assert read("docs", "proof.md") == page.page(read("docs", "proof.md")), "run python3 tests/proof/page.py"
