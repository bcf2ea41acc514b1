"""One line of the table: what was measured, beside what was wanted."""

import statistics
from dataclasses import dataclass, field


class BenchFailed(Exception):
    """A question that cannot be answered, with the reason."""


@dataclass
class Answer:
    """What must and aim limit is the median ratio when there are floors, else the median of the rates; or, of what must not
    happen even once, the worst of them.

    floors and rates are single runs in pairs; without a floor, floors is empty and rates may be one value."""

    question: str
    unit: str  # of floors and rates
    rates: list
    floors: list = field(default_factory=list)
    must: float = None  # None: nothing is asked
    aim: float = None
    more: bool = True  # more is better; False: less is
    worst: bool = False  # judged by the worst run
    note: str = ""
    events: int = None  # of one run
    overhead_s: float = None  # of starting and ending, subtracted from the time of each of the relay's runs: a median
    number: int = None  # the question's; run.py takes it from the file's name

    def __post_init__(self):
        if not self.rates or (self.floors and len(self.floors) != len(self.rates)):
            raise BenchFailed(f"{self.question}: {len(self.rates)} runs beside {len(self.floors)} of the floor")

    @property
    def floor(self):
        return statistics.median(self.floors) if self.floors else None

    @property
    def rate(self):
        return statistics.median(self.rates)

    @property
    def ratios(self):
        return [rate / floor for rate, floor in zip(self.rates, self.floors)]

    @property
    def ratio(self):
        """The median of the pairs' ratios, not the ratio of the medians: what slows a machine down hits a pair."""
        return statistics.median(self.ratios) if self.floors else None

    def keeps(self, limit):
        values = self.rates if self.ratio is None else self.ratios
        worst = min if self.more else max
        value = worst(values) if self.worst else statistics.median(values)
        return value >= limit if self.more else value <= limit

    @property
    def reached(self):
        """aim, must or no; None when nothing was asked for."""
        if self.must is None and self.aim is None:
            return None
        if self.aim is not None and self.keeps(self.aim):
            return "aim"
        return "must" if self.must is not None and self.keeps(self.must) else "no"

    def as_json(self):
        return {"number": self.number, "question": self.question, "floor": rounded(self.floor), "rate": rounded(self.rate),
                "ratio": rounded(self.ratio), "must": self.must, "aim": self.aim, "more": self.more, "reached": self.reached, "worst": self.worst,
                "unit": self.unit, "floors": [rounded(one) for one in self.floors],
                "rates": [rounded(one) for one in self.rates], "ratios": [rounded(one) for one in self.ratios],
                "events": self.events, "overhead_s": rounded(self.overhead_s), "note": self.note}


def rounded(value):
    """Five digits are more than a measurement has; small values keep theirs."""
    return None if value is None else float(f"{value:.5g}")
