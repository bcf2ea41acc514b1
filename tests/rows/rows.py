"""The rows of the source articles. docs/proof.md says of each what the article demands and which tests hold it; a test's name
begins with the rows it holds: test_t9_p5_...

    rows.py tests            the arguments of pytest that run them
    rows.py report FOLDER    what their run came to: a line for each row, by the JUnit files in FOLDER; non-zero when one failed
"""

import glob
import os
import re
import sys
from dataclasses import dataclass

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, REPO)

from tests.proof.report import Results  # noqa: E402 (the path comes first)

PAGE = os.path.join(REPO, "docs", "proof.md")
ARTICLES = {"R": 15, "Q": 5, "T": 13, "P": 5, "L": 7}  # how many rows each has
ROWS = [f"{article}{number}" for article, count in ARTICLES.items() for number in range(1, count + 1)]

LINE = re.compile(r"^\| ([A-Z][0-9]+) \| (.*?) \| (.*) \|$", re.MULTILINE)
NAMED = re.compile(r"`(test_\w+)`")
FUNCTION = re.compile(r"^def (test((?:_[rqtpl][0-9]+)+)_\w+)\(", re.MULTILINE)


@dataclass
class Row:
    id: str
    what: str
    tests: list  # as the page names them


def on_the_page():
    with open(PAGE, encoding="utf-8") as file:
        return [Row(row, what, NAMED.findall(tests)) for row, what, tests in LINE.findall(file.read())]


def tests():
    """{function: (file, [row, ...])} of all tests that are named by rows"""
    found = {}
    for path in sorted(glob.glob(os.path.join(REPO, "tests", "**", "test_*.py"), recursive=True)):
        with open(path, encoding="utf-8") as file:
            for function, rows in FUNCTION.findall(file.read()):
                found[function] = os.path.relpath(path, REPO), rows.upper().split("_")[1:]
    return found


def report(folder):
    results, failed = Results(folder), 0
    promised = {row.id: row.what for row in on_the_page()}
    for row in ROWS:
        mine = [(file.removeprefix("tests/"), function) for function, (file, rows) in tests().items() if row in rows]
        verdict = {True: "pass", False: "FAIL", None: "FAIL (not run)"}[results.of(mine)] if mine else "none"
        failed += verdict.startswith("FAIL")
        runs = sum(len(results.passed.get(test, [])) for test in mine)
        print(f"{row:3}  {promised.get(row, '-')[:120]:<120}  {verdict:<4}  {f'tests {runs}' if mine else ''}".rstrip())
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1] == "report":
        sys.exit(report(sys.argv[2]))
    print("\n".join(f"{file}::{function}" for function, (file, _) in tests().items()))
