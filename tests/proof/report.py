"""What the run of the catalogue's tests came to: report.py FOLDER reads the JUnit files there and prints a line for each
row: its number, the fault, pass, FAIL or out (it has no test), and how many histories its tests checked. Exits non-zero when a row failed."""

import glob
import os
import re
import sys
import xml.etree.ElementTree as xml
from collections import defaultdict

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, REPO)

from tests.proof import catalogue  # noqa: E402 (the path comes first)

CHECK_LINE = re.compile(r":([PFES]):[^:]*:([a-z0-9_]+):\d+: ")  # FILE:LINE:RESULT:CASE:TEST:ITERATION: MESSAGE


class Results:
    """{test: [passed, ...]} of Python functions and of C programs' tests, and how many histories each function checked."""

    def __init__(self, folder):
        self.passed = defaultdict(list)
        self.histories = defaultdict(int)
        for path in glob.glob(os.path.join(folder, "*.xml")):
            for case in xml.parse(path).iter("testcase"):
                if case.get("classname", "").startswith("tests."):
                    self._read_function(case)
                else:
                    self._read_program(case)

    def _read_function(self, case):
        file = case.get("classname").removeprefix("tests.").replace(".", "/") + ".py"
        name = (file, case.get("name").split("[")[0])
        self.passed[name].append(not any(case.find(tag) is not None for tag in ("failure", "error", "skipped")))
        self.histories[name] += sum(int(each.get("value")) for each in case.iter("property") if each.get("name") == "histories")

    def _read_program(self, case):
        for result, test in CHECK_LINE.findall(case.findtext("system-out") or ""):
            self.passed[case.get("name"), test].append(result == "P")

    def of(self, tests):
        """None when one of them did not run, else whether all passed."""
        found = [self.passed.get(test) for test in tests]
        return None if None in found else all(all(each) for each in found)


def main(folder):
    results, failed = Results(folder), 0
    for row in catalogue.load():
        tests = row.python() + row.programs()
        passed = results.of(tests)
        verdict = "out" if row.out else {True: "pass", False: "FAIL", None: "FAIL (not run)"}[passed]
        failed += verdict.startswith("FAIL")
        histories = sum(results.histories[test] for test in tests)
        print(f"{row.row:2}  {row.fault:<95}  {verdict:<4}  {f'histories {histories}' if histories else ''}".rstrip())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
