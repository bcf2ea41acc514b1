"""Entries of latest.json as text: the table that `./dev bench` prints."""

import operator


def number(value):
    """Three digits: a measurement has no more."""
    if value is None:
        return "-"
    if abs(value) >= 100 or value == 0:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def ratio(entry):
    """A third digit where two would tell something else beside must or aim."""
    value = entry["ratio"]
    if value is None or value >= 10:
        return number(value)
    keeps = operator.ge if entry["more"] else operator.le
    bounds = [entry[name] for name in ("must", "aim") if entry[name] is not None]
    misleads = any(keeps(value, bound) != keeps(float(number(value)), bound) for bound in bounds)
    return f"{value:.3f}" if misleads else number(value)


def spread(values):
    return f"{number(min(values))} .. {number(max(values))}" if len(values) > 1 else ""


def limit(entry, name):
    """must or aim, as a bound."""
    value = entry[name]
    return "-" if value is None else f"{'>=' if entry['more'] else '<='} {value:g}"


COLUMNS = (  # title, width (negative: to the left), text of an entry
    ("question", -46, lambda entry: f"{entry['number']:>2} {entry['question']}"),
    ("floor", 9, lambda entry: number(entry["floor"])),
    ("(range)", -19, lambda entry: spread(entry["floors"])),
    ("relay", 9, lambda entry: number(entry["rate"])),
    ("(range)", -19, lambda entry: spread(entry["rates"])),
    ("unit", -8, lambda entry: entry["unit"]),
    ("ratio", 6, ratio),
    ("must", 8, lambda entry: limit(entry, "must")),
    ("aim", 8, lambda entry: limit(entry, "aim")),
    ("reached", -7, lambda entry: entry["reached"] or "-"),
)


def padded(text, width):
    return text.ljust(-width) if width < 0 else text.rjust(width)


def lines(entries):
    yield "  ".join(padded(title, width) for title, width, _ in COLUMNS).rstrip()
    for entry in entries:
        yield "  ".join(padded(text(entry), width) for _, width, text in COLUMNS).rstrip()
