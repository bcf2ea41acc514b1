"""Entries of latest.json as SVG: a plot for each question, and one of all beside their aims."""

import html
import os

from bench.table import number

WIDTH, LEFT, RIGHT = 720, 60, 80  # of a plot, of the names beside its bars, of the values
NAMES = 320  # of the names in the plot of all
BAR, GAP, HEAD = 16, 6, 26
GREY, BLUE, GREEN, AMBER, RED, INK = "#9aa5b1", "#3b6fd4", "#3a9a5b", "#d99a2b", "#c9463d", "#24292f"
REACHED = {"aim": GREEN, "must": AMBER, "no": RED}
PAST_AIM = 1.5  # what is beyond is cut off


class Canvas:
    """Shapes one below the other."""

    def __init__(self):
        self.shapes, self.y = [], GAP

    def text(self, x, text, anchor="start", weight="normal"):
        self.shapes.append(f'<text x="{x:.0f}" y="{self.y + BAR - 4}" text-anchor="{anchor}" font-weight="{weight}">{html.escape(text)}</text>')

    def rect(self, x, width, colour):
        self.shapes.append(f'<rect x="{x:.1f}" y="{self.y}" width="{max(width, 1):.1f}" height="{BAR}" fill="{colour}"/>')

    def line(self, x1, x2, y1, y2, dash=""):
        dash = f' stroke-dasharray="{dash}"' if dash else ""
        self.shapes.append(f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1}" y2="{y2}" stroke="{INK}"{dash}/>')

    def svg(self):
        body = "\n".join(self.shapes)
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{self.y + GAP}" font-family="sans-serif" font-size="12" '
                f'fill="{INK}">\n<rect width="100%" height="100%" fill="#ffffff"/>\n{body}\n</svg>\n')


def bar(canvas, name, values, middle, scale, colour):
    """The median as a bar, the range of the runs as a line upon it."""
    canvas.text(LEFT - 10, name, "end")
    canvas.rect(LEFT, middle * scale, colour)
    if len(values) > 1:
        canvas.line(LEFT + min(values) * scale, LEFT + max(values) * scale, canvas.y + BAR / 2, canvas.y + BAR / 2)
    canvas.text(WIDTH - 10, number(middle), "end")
    canvas.y += BAR + GAP


def limits(entry):
    """(name, value on the axis of the rates) of must and aim."""
    unit = 1 if entry["floor"] is None else entry["floor"]
    return [(name, entry[name] * unit) for name in ("must", "aim") if entry[name] is not None]


def of_question(entries):
    """Each answer on an axis of its own: units differ."""
    canvas = Canvas()
    for entry in entries:
        unit = f", {entry['unit']}" if entry["unit"] else ""
        canvas.text(10, entry["question"] + unit, weight="bold")
        canvas.y += HEAD - GAP
        most = max([*entry["floors"], *entry["rates"], *(value for _, value in limits(entry))]) or 1
        scale, top = (WIDTH - LEFT - RIGHT) / most, canvas.y
        if entry["floor"] is not None:
            bar(canvas, "floor", entry["floors"], entry["floor"], scale, GREY)
        bar(canvas, "relay", entry["rates"], entry["rate"], scale, REACHED.get(entry["reached"], BLUE))
        for name, value in limits(entry):
            canvas.line(LEFT + value * scale, LEFT + value * scale, top - 2, canvas.y, "" if name == "must" else "3 2")
        canvas.y += GAP
    return canvas.svg()


def target(entry):
    """The aim, or where there is none what must be reached; None: nothing was asked for."""
    return entry["must"] if entry["aim"] is None else entry["aim"]


def share_of_target(entry, value):
    """1: it is reached, whichever way it is measured."""
    if value == target(entry):
        return 1
    if entry["more"]:
        return value / target(entry)
    return target(entry) / value if value else PAST_AIM


def of_all(entries):
    """How much of its aim each answer is; the line in a bar is what must be reached."""
    canvas, scale = Canvas(), (WIDTH - NAMES - RIGHT) / PAST_AIM
    canvas.text(NAMES + scale, "aim", "middle", "bold")
    canvas.y += HEAD - GAP
    top = canvas.y
    for entry in (entry for entry in entries if entry["reached"]):
        value = entry["rate"] if entry["ratio"] is None else entry["ratio"]
        whole = entry["aim"] is None and entry["reached"] == "must"
        canvas.text(NAMES - 10, f"{entry['number']} {entry['question']}", "end")
        canvas.rect(NAMES, min(share_of_target(entry, value), PAST_AIM) * scale, GREEN if whole else REACHED[entry["reached"]])
        if entry["must"] is not None:
            at = NAMES + share_of_target(entry, entry["must"]) * scale
            canvas.line(at, at, canvas.y, canvas.y + BAR)
        canvas.text(WIDTH - 10, number(value), "end")
        canvas.y += BAR + GAP
    canvas.line(NAMES + scale, NAMES + scale, top, canvas.y, "3 2")
    return canvas.svg()


def of_each(entries):
    """{file name: SVG}: all.svg, and NN.svg for each question."""
    numbers = sorted({entry["number"] for entry in entries})
    plots = {f"{each:02}.svg": of_question([entry for entry in entries if entry["number"] == each]) for each in numbers}
    return {"all.svg": of_all(entries), **plots}


def write(entries, folder):
    for name, text in of_each(entries).items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
