"""What of the program the tests ran, beside what they should: coverage.py TRACEFILE prints the table and exits non-zero
under the targets; --files adds a line for each file, --gaps each line and branch that never ran.

The tracefile is lcov's. What it leaves out is marked in the source and listed with reasons in docs/coverage.md:
--exclusions checks that the two agree, --rule prints the regular expression of lines whose branches do not count."""

import argparse
import os
import re
import subprocess
import sys

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGE = os.path.join(REPO, "docs", "coverage.md")
AREAS = ("relay/", "ordering/", "sinks/")
# Percent of lines and of branches; None: no target of its own.
TARGETS = {"relay/": (100.0, 95.0), "ordering/": (100.0, 95.0), "sinks/": (None, None), "overall": (95.0, None)}

# Lines like these have a branch that only a defect takes; docs/coverage.md gives the reason of each.
RULES = ("assert(",)
MARKER = re.compile(r"LCOV_EXCL_(?:BR_)?(?:LINE|START)")
ROW = re.compile(r"^\| `([^`]+)` \| `([^`]+)` \| (.{20,}) \|$", re.MULTILINE)  # file, code, reason


class File:
    """One source file's counts."""

    def __init__(self, name):
        self.name = name
        self.lines = {}     # number -> times run
        self.branches = {}  # (line, block, branch) -> times taken, None where its condition was never reached

    def ran(self):
        return sum(1 for count in self.lines.values() if count), len(self.lines)

    def taken(self):
        return sum(1 for count in self.branches.values() if count), len(self.branches)


def read(path):
    """{name: File} of a tracefile, names relative to the repository, sorted."""
    files, file = {}, None
    with open(path, encoding="utf-8") as tracefile:
        for line in tracefile:
            tag, _, rest = line.rstrip("\n").partition(":")
            if tag == "SF":
                name = os.path.relpath(rest, REPO)
                file = files.setdefault(name, File(name))
            elif tag == "DA":
                number, count = rest.split(",")[:2]
                file.lines[int(number)] = file.lines.get(int(number), 0) + int(count)
            elif tag == "BRDA":
                number, block, branch, count = rest.split(",")
                place, before = (int(number), block, branch), file.branches.get((int(number), block, branch))
                file.branches[place] = before if count == "-" else int(count) + (before or 0)
    return {name: files[name] for name in sorted(files) if name.startswith(AREAS)}


def percent(part, whole):
    return 100.0 * part / whole if whole else 100.0


def row(name, lines, branches, targets=(None, None)):
    """(text, whether it keeps its targets)"""
    text, kept = f"{name:28}", True
    for (part, whole), target in zip((lines, branches), targets):
        has = percent(part, whole)
        text += f" {part:6} of {whole:5} {has:7.2f} %"
        text += f" {'(' + format(target, 'g') + ')':>6}" if target else " " * 7
        kept = kept and (target is None or has >= target)
    return text + ("" if kept else "  UNDER TARGET"), kept


def summed(pairs):
    pairs = list(pairs)
    return sum(part for part, _ in pairs), sum(whole for _, whole in pairs)


def table(files):
    """(lines of text, whether all targets are kept)"""
    texts, all_kept = [f"{'':28} {'lines (target)':>32} {'branches (target)':>32}"], True
    for area, targets in TARGETS.items():
        chosen = [file for file in files.values() if area == "overall" or file.name.startswith(area)]
        text, kept = row(area, summed(file.ran() for file in chosen), summed(file.taken() for file in chosen), targets)
        texts.append(text)
        all_kept = all_kept and kept
    return texts, all_kept


def gaps(file):
    with open(os.path.join(REPO, file.name), encoding="utf-8") as source:
        text = ["", *source.read().splitlines()]
    for number in sorted(set(file.lines) | {place[0] for place in file.branches}):
        if file.lines.get(number) == 0:
            yield f"{file.name}:{number}: never run: {text[number].strip()}"
            continue
        counts = [count for place, count in sorted(file.branches.items(), key=in_order) if place[0] == number]
        if not all(counts):
            marks = " ".join("+" if count else "-" for count in counts)
            yield f"{file.name}:{number}: branches {marks}: {text[number].strip()}"


def in_order(branch):
    (number, block, name), _ = branch
    return number, int(block), int(name) if name.isdigit() else 0, name


# --- what is left out -------------------------------------------------------------------------------------------------

def rule():
    return "|".join(["LCOV_EXCL_BR_LINE", *(re.escape(text) for text in RULES)])


def marked():
    """{(file, code)} of the markers in the source. A marker of its own line stands for the line after it."""
    found = set()
    for name in subprocess.run(["git", "ls-files", *AREAS], cwd=REPO, capture_output=True, text=True, check=True).stdout.split():
        with open(os.path.join(REPO, name), encoding="utf-8") as source:
            lines = source.read().splitlines()
        for number, line in enumerate(lines):
            if MARKER.search(line):
                code = line.split("/*")[0].strip() or lines[number + 1].strip()
                found.add((name, code))
    return found


def exclusions():
    """True when the page and the source leave out the same."""
    with open(PAGE, encoding="utf-8") as file:
        listed = {(name, code) for name, code, _reason in ROW.findall(file.read())}
    wanted = marked() | {("everywhere", text) for text in RULES}
    for name, code in sorted(wanted - listed):
        print(f"docs/coverage.md: `{code}` of {name} is left out without a reason: add a row")
    for name, code in sorted(listed - wanted):
        print(f"docs/coverage.md: `{code}` of {name} is not left out: remove the row")
    if wanted == listed:
        print(f"{len(wanted)} exclusions, each with its reason")
    return wanted == listed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tracefile", nargs="?")
    for option in ("--files", "--gaps", "--rule", "--exclusions"):
        parser.add_argument(option, action="store_true")
    given = parser.parse_args()
    if given.rule:
        print(rule())
        return 0
    if given.exclusions:
        return 0 if exclusions() else 1
    files = read(given.tracefile)
    if given.files:
        print("\n".join(row(file.name, file.ran(), file.taken())[0] for file in files.values()))
    if given.gaps:
        print("\n".join(text for file in files.values() for text in gaps(file)))
    texts, kept = table(files)
    print("\n".join(texts))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
