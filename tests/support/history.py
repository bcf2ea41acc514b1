"""The history check: do the receipts of a sink fit the events that were committed and the faults that were injected?

    history = History(events, receipts, faults=[Fault("SIGKILL", receipts=812, in_flight=64)])
    history.check()            # raises HistoryError with the offending keys' histories
    history.duplicates         # how many receipts were extra, and duplicates_by_fault: after which fault they came

It knows nothing of relays or sinks; what it demands is the contract of DESIGN.md:

    lost        G1  committed and neither received nor dead
    phantom         received, but never committed, or under another key
    order       G2  received for the first time while a smaller id of its key was not received yet
    duplicate   G3  received again although no fault had happened
                G4  received again more often than the faults so far had events in flight
"""

from collections import defaultdict, namedtuple
from dataclasses import dataclass

Event = namedtuple("Event", "id key")  # key None: no order with any other event
Receipt = namedtuple("Receipt", "id key")


@dataclass
class Fault:
    """One fault whose deliveries may or may not have arrived. `receipts`: the sink had at least so many when it
    happened; 0 when nobody can tell, as with the partitions of a topic."""

    what: str
    receipts: int
    in_flight: int


Problem = namedtuple("Problem", "kind key text")

HISTORIES_SHOWN = 3
LINES_SHOWN = 40


class HistoryError(AssertionError):
    """The text names every kind of problem and shows the histories of the first offending keys."""


class _Key:
    """What of one key was committed, and how far its receipts have come."""

    def __init__(self):
        self.ids = []
        self.at = 0  # of ids: everything before was received or need not be

    def waits_for(self, done):
        """The smallest id that is not in `done`, None when there is none."""
        while self.at < len(self.ids) and self.ids[self.at] in done:
            self.at += 1
        return self.ids[self.at] if self.at < len(self.ids) else None


class History:
    """events: (id, key) as committed; receipts: (id, key) in the order in which the sink got them, which need only be
    right within each key; faults: in order; dead: ids of dead letters, for which later events of the key do not wait."""

    def __init__(self, events, receipts, faults=(), dead=()):
        self.keys = {event_id: key for event_id, key in events}
        self.receipts = [Receipt(*receipt) for receipt in receipts]
        self.faults = list(faults)
        self.dead = set(dead)
        self.duplicates = 0
        self.duplicates_by_fault = [0] * len(self.faults)
        self.problems = []
        self._walk(self._by_key())

    def _by_key(self):
        lanes = defaultdict(_Key)
        for event_id in sorted(self.keys):
            lanes[self.keys[event_id]].ids.append(event_id)
        return lanes

    def _problem(self, kind, key, text):
        self.problems.append(Problem(kind, key, text))

    def _walk(self, lanes):
        received, done = set(), set(self.dead)
        past = 0  # faults that have happened
        for number, (event_id, key) in enumerate(self.receipts):
            while past < len(self.faults) and self.faults[past].receipts <= number:
                past += 1
            if event_id not in self.keys:
                self._problem("phantom", key, f"event {event_id} was received and never committed")
            elif self.keys[event_id] != key:
                self._problem("phantom", self.keys[event_id],
                              f"event {event_id} of key {self.keys[event_id]!r} was received under key {key!r}")
            elif event_id in received:
                self._count_duplicate(event_id, key, past)
            else:
                self._check_order(event_id, key, lanes[key], done)
                received.add(event_id)
                done.add(event_id)
        for event_id in sorted(self.keys.keys() - done):
            self._problem("lost", self.keys[event_id], f"event {event_id} was committed and never received")

    def _count_duplicate(self, event_id, key, past):
        self.duplicates += 1
        if past > 0:
            self.duplicates_by_fault[past - 1] += 1
        allowed = sum(fault.in_flight for fault in self.faults[:past])
        if past == 0:
            self._problem("duplicate", key, f"event {event_id} was received again, and nothing had gone wrong")
        elif self.duplicates > allowed:
            self._problem("duplicate", key, f"event {event_id} is extra delivery number {self.duplicates};"
                                            f" the faults so far had at most {allowed} events in flight")

    def _check_order(self, event_id, key, lane, done):
        if key is None or event_id in self.dead:
            return
        first = lane.waits_for(done)
        if first != event_id:
            self._problem("order", key, f"event {event_id} was received first while {first} was still to come")

    def kinds(self):
        return {problem.kind for problem in self.problems}

    def key_history(self, key):
        """The key's committed ids and its receipts with the faults between them, as text."""
        committed = [event_id for event_id in sorted(self.keys) if self.keys[event_id] == key]
        lines = [f"key {key!r}", f"  committed: {_shorten(committed)}"]
        dead = [event_id for event_id in committed if event_id in self.dead]
        if dead:
            lines.append(f"  dead: {_shorten(dead)}")
        seen, faults = set(), list(self.faults)
        for number, (event_id, under) in enumerate(self.receipts):
            if under != key and self.keys.get(event_id, under) != key:
                continue
            while faults and faults[0].receipts <= number:
                lines.append(f"  -------  {faults.pop(0).what}")
            marks = ["again"] if event_id in seen else []
            marks += [f"under key {under!r}"] if under != key else []
            lines.append(f"  receipt {number}: event {event_id} {' '.join(marks)}".rstrip())
            seen.add(event_id)
        return "\n".join(lines[:LINES_SHOWN] + (["  ..."] if len(lines) > LINES_SHOWN else []))

    def report(self):
        """One line a kind, then the histories of the first offending keys."""
        lines = []
        for kind in sorted(self.kinds()):
            texts = [problem.text for problem in self.problems if problem.kind == kind]
            lines.append(f"{kind}: {len(texts)}, first: {texts[0]}")
        keys = list(dict.fromkeys(problem.key for problem in self.problems))
        lines += [self.key_history(key) for key in keys[:HISTORIES_SHOWN]]
        if len(keys) > HISTORIES_SHOWN:
            lines.append(f"and {len(keys) - HISTORIES_SHOWN} more keys")
        return "\n".join(lines)

    def check(self):
        if self.problems:
            raise HistoryError(self.report())
        return self


def _shorten(ids, most=30):
    return " ".join(str(each) for each in ids[:most]) + (f" ... ({len(ids)})" if len(ids) > most else "")
