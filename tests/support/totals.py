"""Sums the results that ctest and pytest left as JUnit files: totals.py FOLDER prints `N passed, N failed, N skipped`
and exits non-zero when a test failed, when none ran, or when one was skipped where CI is set."""

import glob
import os
import re
import sys
import xml.etree.ElementTree as xml

CHECK_SUMMARY = re.compile(r"^\d+%: Checks: (\d+), Failures: (\d+), Errors: (\d+)", re.MULTILINE)


def count_case(case):
    """(passed, failed, skipped) of one <testcase>. A C program is one case, its tests are counted by what Check said;
    one that died before Check could say so is one failure more."""
    failed_as_a_whole = case.find("failure") is not None or case.find("error") is not None
    sums = CHECK_SUMMARY.findall(case.findtext("system-out") or "")
    if sums:
        checks = sum(int(total) for total, _, _ in sums)
        failed = sum(int(failures) + int(errors) for _, failures, errors in sums)
        if failed_as_a_whole and failed == 0:
            failed, checks = 1, checks + 1
        return checks - failed, failed, 0
    if failed_as_a_whole:
        return 0, 1, 0
    skipped = case.find("skipped") is not None or case.get("status") == "notrun"
    return (0, 0, 1) if skipped else (1, 0, 0)


def count_file(path):
    try:
        cases = xml.parse(path).iter("testcase")
    except xml.ParseError as error:
        print(f"{os.path.basename(path)} is not whole: {error}")
        return 0, 1, 0
    counts = [count_case(case) for case in cases]
    return tuple(sum(column) for column in zip(*counts)) if counts else (0, 0, 0)


def main(folder):
    counts = [count_file(path) for path in glob.glob(os.path.join(folder, "*.xml"))]
    passed, failed, skipped = (sum(column) for column in zip((0, 0, 0), *counts))
    strict = os.environ.get("CI") == "true"
    if strict and skipped:
        print("CI is set: a skipped test is a failure")
    if not passed and not failed:
        print("no test ran")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed or (strict and skipped) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
