"""What the history check found, and how it is told: the kinds of breach, then the shortest of the offending histories."""

from collections import Counter, namedtuple

Violation = namedtuple("Violation", "kind key id text")

KINDS = {
    "lost": "G1: committed, and neither acknowledged nor dead nor left",
    "phantom": "never committed",
    "order": "G2: delivered first while a smaller id of its key had no acknowledgement",
    "duplicate": "G3: delivered again without a fault that explains it",
    "bound": "G4: delivered again more often than the faults had events in flight",
    "exclusion": "G5: two relays in one key at once",
    "stuck": "G6: still there, and no reason why",
    "key": "delivered under another key",
    "bytes": "delivered with another payload",
    "attempt": "attempts counted wrongly",
    "cause": "dead or parked without cause",
    "account": "not in exactly one of sink, dead letters and table",
}
OUTCOMES = {"yes": "", "no": " (rolled back)", "unknown": " (unknown)"}
KEYS_SHOWN, LINES_SHOWN, IDS_SHOWN = 3, 40, 30


class HistoryError(AssertionError):
    """The text is the verdict's report."""


def lane(key, event_id):
    """What is ordered: the events of a key, or one that has none, alone."""
    return (None, event_id) if key is None else key


class Verdict:
    """counts: produced, delivered, dead, left, dropped. duplicates: takes beyond an event's first; by_fault: the extra
    deliveries that each fault explains."""

    def __init__(self, events, receipts, faults, seed):
        self.events, self.receipts, self.faults, self.seed = events, receipts, faults, seed
        self.violations = []
        self.counts = {}
        self.duplicates = 0
        self.duplicates_by_fault = []

    @property
    def ok(self):
        return not self.violations

    def kinds(self):
        return {violation.kind for violation in self.violations}

    def require(self):
        if self.violations:
            raise HistoryError(self.report())
        return self

    def summary(self):
        total = "produced {produced} = delivered {delivered} + dead {dead} + left {left} + dropped {dropped}".format(**self.counts)
        return f"{total}; {len(self.receipts)} receipts, {self.duplicates} duplicates, {len(self.faults)} faults"

    def report(self):
        lines = [] if self.seed is None else [f"seed {self.seed}"]
        for kind, meaning in KINDS.items():
            texts = [violation.text for violation in self.violations if violation.kind == kind]
            if texts:
                lines.append(f"{kind} ({meaning}): {len(texts)}, first: {texts[0]}")
        lanes = self.smallest()
        lines += [self.history_of(name) for name in lanes[:KEYS_SHOWN]]
        if len(lanes) > KEYS_SHOWN:
            lines.append(f"and {len(lanes) - KEYS_SHOWN} more keys")
        return "\n".join([*lines, self.summary()])

    def smallest(self):
        """The offending lanes, the one with the shortest history first."""
        sizes = Counter(lane(record.key, record.id) for records in (self.events.values(), self.receipts) for record in records)
        offending = dict.fromkeys(lane(violation.key, violation.id) for violation in self.violations)
        return sorted(offending, key=lambda name: sizes[name])

    def history_of(self, name):
        """What was inserted into one lane, and its receipts with the faults between them, as text."""
        own = sorted(event_id for event_id, event in self.events.items() if lane(event.key, event_id) == name)
        shown = [f"{event_id}{OUTCOMES[self.events[event_id].commit]}" for event_id in own[:IDS_SHOWN]]
        lines = [f"event {name[1]}" if isinstance(name, tuple) else f"key {name!r}",
                 f"  inserted: {' '.join(shown)}{f' ... ({len(own)})' if len(own) > IDS_SHOWN else ''}"]
        mine, seen, faults = set(own), set(), list(self.faults)
        for number, receipt in enumerate(self.receipts):
            if receipt.id not in mine and lane(receipt.key, receipt.id) != name:
                continue
            while faults and faults[0].has_begun(number, receipt):
                lines.append(f"  -------  {_describe_fault(faults[0])}")
                del faults[0]
            lines.append(f"  receipt {number}: {_describe(receipt, name, receipt.id in seen)}")
            seen.add(receipt.id)
        return "\n".join(lines[:LINES_SHOWN] + (["  ..."] if len(lines) > LINES_SHOWN else []))


def _describe_fault(fault):
    return f"{fault.what}{f' of {fault.relay}' if fault.relay else ''}, {fault.in_flight} in flight"


def _describe(receipt, name, again):
    marks = [f"event {receipt.id}", "again" if again else "", "" if receipt.answer == "ack" else receipt.answer,
             "" if lane(receipt.key, receipt.id) == name else f"under key {receipt.key!r}",
             f"from {receipt.relay}" if receipt.relay else "", f"attempt {receipt.attempt}" if receipt.attempt else ""]
    return " ".join(filter(None, marks))
