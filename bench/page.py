"""The blocks of docs/performance.md, README.md and results/README.md that come from latest.json: `./dev bench` fills them after
each question, `python3 -m bench.page` them and the plots without measuring. Each stands between <!-- bench:NAME --> and
<!-- /bench -->."""

import os
import re
import statistics

from bench import plot, results
from bench.table import limit, number, ratio, spread
from tests.support.process import REPO

PAGE = os.path.join(os.path.dirname(results.PATH), "README.md")  # a block for each question
PAGES = (PAGE, os.path.join(REPO, "docs", "performance.md"), os.path.join(REPO, "README.md"))
PLOTS = "../bench/results"  # from docs/
SHORT = ("drain to Kafka", "drain to Redis", "drain to HTTP", "latency to Redis, p50")  # what README.md shows
BARE_FLOORS = (1, 2, 3, 4)  # whose times begin when they are connected
BLOCK = re.compile(r"(<!-- bench:(\w+) -->\n).*?(<!-- /bench -->)", re.DOTALL)

COLUMNS = (  # title, text of an entry
    ("question", lambda entry: entry["question"]),
    ("floor", lambda entry: with_range(entry["floor"], entry["floors"])),
    ("relay", lambda entry: with_range(entry["rate"], entry["rates"])),
    ("unit", lambda entry: entry["unit"]),
    ("ratio", lambda entry: ranged(ratio(entry), entry["ratios"])),
    ("must", lambda entry: limit(entry, "must")),
    ("aim", lambda entry: limit(entry, "aim")),
    ("reached", lambda entry: f"**{entry['reached']}**" if entry["reached"] else "-"),
)
MIDDLES = {"ratio": ratio, "floor": lambda entry: number(entry["floor"]), "relay": lambda entry: number(entry["rate"])}  # no range


def ranged(middle, values):
    return f"{middle} ({spread(values)})" if spread(values) else middle


def with_range(middle, values):
    return ranged(number(middle), values)


def table(entries, columns=COLUMNS):
    head, *rows = [[title for title, _ in columns], *([text(entry) for _, text in columns] for entry in entries)]
    lines = [f"| {' | '.join(row)} |\n" for row in (head, *rows)]
    return "".join([lines[0], f"|{'---|' * len(columns)}\n", *lines[1:]])


def numbers_of(entries):
    """question 18; questions 1-4, 6, 7"""
    numbers = sorted({entry["number"] for entry in entries})
    begins = [each for each in numbers if each - 1 not in numbers]
    ends = [each for each in numbers if each + 1 not in numbers]
    said = [str(lo) if lo == hi else f"{lo}, {hi}" if hi == lo + 1 else f"{lo}-{hi}" for lo, hi in zip(begins, ends)]
    return f"question{'s' if len(numbers) > 1 else ''} {', '.join(said)}"


def runs_said(entries):
    """How many runs a number is of: as many as --pairs says, but for some questions."""
    usual, others = False, []
    for question in sorted({entry["number"] for entry in entries}):
        *less, most = sorted({len(entry["rates"]) for entry in entries if entry["number"] == question})
        if not less and most == entries[0]["pairs"]:
            usual = True
        else:
            counts = " or ".join(filter(None, [", ".join(map(str, less)), str(most)]))
            others.append(f"{'' if others else 'question '}{question}: {counts}")
    if not usual:
        return f"runs ({'; '.join(others)})"
    return f"{entries[0]['pairs']} runs of each" + (f" ({'; '.join(others)})" if others else "")


def grouped(entries, *names):
    """Lists of those that are alike in these, in their order."""
    groups = {}
    for entry in entries:
        groups.setdefault(tuple(str(entry[name]) for name in names), []).append(entry)
    return [some for _, some in sorted(groups.items())]


def run_said(some, is_only):
    one = some[0]
    which = "" if is_only else f"({numbers_of(some)})"
    commit = f"commit {one['commit']} {which}".strip() if one["commit"] else which
    return ", ".join(filter(None, [one["made"][:10], commit, runs_said(some), "`--quick`" if one["quick"] else ""]))


def origin(entries):
    """When and on what: a line for each machine that is among them."""
    entries = [{**entry, "day": entry["made"][:10]} for entry in entries]
    lines = []
    for of_machine in grouped(entries, "cpus", "cpu", "postgres"):
        one, runs = of_machine[0], grouped(of_machine, "day", "commit", "pairs", "quick")
        load = sorted({entry["load_before"] for entry in of_machine})
        said = "; ".join(run_said(some, len(runs) == 1) for some in runs)
        lines.append(f"Measured with {one['cpus']} CPUs ({one['cpu']}), PostgreSQL {one['postgres']}, load before a question "
                     f"{spread(load) or load[0]}: {said}.\n")
    return "\n".join(lines)


def reached_said(entries):
    asked = [entry for entry in entries if entry["reached"]]
    reached = [entry["reached"] for entry in asked]
    return (f"Of {len(asked)} numbers with a target, {reached.count('aim')} reach the aim, {reached.count('must')} more what they "
            f"must, and {reached.count('no')} do not")


def block_all(entries):
    """What has been reached, and of what run."""
    words = f"{reached_said(entries)}.\n"
    return f"{words}\n![each number beside its aim]({PLOTS}/all.svg)\n\n{origin(entries)}"


def ratio_with_overhead(entry):
    """Where the floor is no relay: the ratio that starting and ending would leave."""
    if entry["number"] not in BARE_FLOORS or not entry["ratios"] or not entry["events"]:
        return ""
    with_them = [1 / (1 / rate + entry["overhead_s"] / entry["events"]) / floor for rate, floor in zip(entry["rates"], entry["floors"])]
    return f"{statistics.median(with_them):.2f}"


def note_of(entry):
    judged = "judged by the worst run" if entry.get("worst") and len(entry["rates"]) > 1 else ""
    return "; ".join(filter(None, [entry["note"], judged]))


def notes_of(entries):
    """A paragraph for each note, which names the entries that have it."""
    names = {}
    for entry in entries:
        if note_of(entry):
            names.setdefault(note_of(entry), []).append(entry["question"])
    return "".join(f"\n{'; '.join(some)}: {note}.\n" for note, some in names.items())


def overhead_of(entries):
    """What is subtracted from the relay's times, and the ratios without that, in the order of the rows."""
    some = [entry for entry in entries if entry.get("overhead_s")]
    seconds = sorted({f"{entry['overhead_s']:.2f}" for entry in some})
    if not seconds:
        return ""
    with_them = [text for text in map(ratio_with_overhead, some) if text]
    said = f"; with them the ratio is {', '.join(with_them)}" if with_them else ""
    return f"\nStarting and ending ({' .. '.join(dict.fromkeys([seconds[0], seconds[-1]]))} s) are not in the relay's times{said}.\n"


def block_question(entries, asked):
    some = [entry for entry in entries if entry["number"] == asked]
    if not some:
        return "Not measured yet.\n"
    return f"{table(some)}{notes_of(some)}{overhead_of(some)}\n![runs of question {asked}]({asked:02}.svg)\n"


def with_unit(entry):
    """Of what a rate is, the question says."""
    if entry["unit"].endswith("/s"):
        return f"{number(entry['rate'])}/s"
    return f"{number(entry['rate'])} {entry['unit']}".strip()


def block_table(entries):
    """The middle of each number with a target, for docs/performance.md: the ratio says how far the floor is."""
    columns = (("question", lambda entry: f"{entry['number']}. {entry['question']}"),
               ("relay", with_unit),
               ("ratio, reached", lambda entry: f"{'' if entry['ratio'] is None else ratio(entry)} **{entry['reached']}**".strip()))
    return table([entry for entry in entries if entry["reached"]], columns)


def block_short(entries):
    some = [entry for entry in entries if entry["question"] in SHORT]
    missed = "; ".join(f"{entry['question']} ({number(entry['rate']) if entry['ratio'] is None else ratio(entry)})"
                       for entry in entries if entry["reached"] == "no")
    columns = [(title, MIDDLES.get(title, text)) for title, text in COLUMNS if title not in ("must", "aim", "reached")]
    words = f"{reached_said(entries)}{f': {missed}' if missed else ''}.\n"
    return f"{table(some, columns)}\n{words}\n{origin(some)}"


def block(name, entries):
    if name.isdigit():
        return block_question(entries, int(name))
    return {"all": block_all, "short": block_short, "table": block_table}[name](entries)


def fill(text, entries):
    return BLOCK.sub(lambda found: found.group(1) + block(found.group(2), entries) + found.group(3), text)


def blocks(text):
    """The names of the blocks of a page, in order."""
    return [found.group(2) for found in BLOCK.finditer(text)]


def update(entries):
    for path in PAGES:
        with open(path, encoding="utf-8") as file:
            before = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(fill(before, entries))


if __name__ == "__main__":
    update(results.read())
    plot.write(results.read(), os.path.dirname(results.PATH))
