"""The history check: did the relays keep their promises, judged by everyone but the relays?

    verdict = check(producers="producers.jsonl", sinks=["sink-1.jsonl"], faults="faults.jsonl", final=shop.final(), seed=7)
    verdict.ok, verdict.kinds(), verdict.violations, verdict.counts, verdict.duplicates_by_fault
    verdict.require()          # raises HistoryError with the report: each kind, the smallest offending histories, the seed

A journal is the path of a file of JSON lines (tests/support/journal.py writes them), or an iterable of such paths, dicts
or records. The fields are those of the records below; only `id` and `key` must be there, and what a journal does not tell
is not judged.

    producers   Event: one line for each row inserted. commit is yes, no (rolled back) or unknown (the reply of COMMIT
                did not come); a later line for the same id replaces the earlier. doomed: no sink can take this one.
    sinks       Receipt: one line for each request, in the order of receipt, which need only be right within each key.
                Journals that have `at` are merged by it. at, end: time.monotonic() of the request and of its answer.
        answer  ack     took it and said so             refuse  did not take it: the event's fault, to be tried again
                silent  took it, told nobody            reject  did not take it and never will
                late    took it, may have been told     away    did not take it, and not for the event's sake
    faults      Fault: one line for each, written before it is injected. in_flight is how many events had no known
                outcome at most; 0: nothing became uncertain. A fault explains no more than so many events that came
                again, as many that came from two relays at once, and one attempt that no sink saw. Narrow it down: ids
                (which events), relay (whose), at, receipts (the sink had at least so many), until (nothing it left behind
                can arrive later than that). What somebody did by hand is a fault, too: revived and dropped are ids of dead
                letters. A retry makes nothing uncertain: it sends again what was not taken, until it is acknowledged or dead.
    final       Final: what the database held in the end; shop.py reads it.

ordered=False leaves out what holds for keys only. attempts: failures before an event is given up. drained=False: the
relays were stopped with work left, so nothing is called stuck. What the kinds of violations mean is in verdict.py.

Time is linear in events and receipts; a million of each take some ten seconds."""

import os
from collections import Counter, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from operator import attrgetter

from tests.support.journal import read_lines
from tests.support.verdict import Verdict, Violation, lane

Event = namedtuple("Event", "id key commit hash doomed", defaults=["yes", None, False])
Receipt = namedtuple("Receipt", "id key answer relay attempt hash at end", defaults=["ack", None, None, None, None, None])
Parked = namedtuple("Parked", "id key closed")  # id: the event that the key waits for; closed: until somebody opens it
Extra = namedtuple("Extra", "id text options number")  # a delivery that one of the faults `options` must explain

TAKEN = frozenset(["ack", "late", "silent"])


class Fault(namedtuple("Fault", "what in_flight relay ids receipts at until revived dropped",
                       defaults=[0, None, None, 0, None, None, (), ()])):
    def has_begun(self, number, receipt):
        """May be the reason of that receipt, the number'th."""
        return self.receipts <= number and (self.at is None or receipt.at is None or self.at <= receipt.at)

    def may_be_of(self, *relays):
        """One of them is the fault's relay, or nobody knows."""
        return self.relay is None or any(relay in (None, self.relay) for relay in relays)

    def may_touch(self, receipt):
        """May have made that receipt's outcome uncertain."""
        over = self.until is not None and receipt.at is not None and receipt.at > self.until
        return self.in_flight > 0 and not over and (self.ids is None or receipt.id in self.ids)


@dataclass
class Final:
    """Ids, but for parked. archived None: nothing is archived."""

    left: list = field(default_factory=list)
    dead: list = field(default_factory=list)
    archived: list = None
    parked: list = field(default_factory=list)


def check(producers, sinks, faults=(), final=None, *, ordered=True, attempts=1, drained=True, seed=None):
    """The Verdict on one run."""
    receipts = list(_records(sinks, Receipt))
    if all(receipt.at is not None for receipt in receipts):
        receipts.sort(key=attrgetter("at"))
    events = {event.id: event for event in _records(producers, Event)}
    judge = _Judge(Verdict(events, receipts, list(_records(faults, Fault)), seed), final or Final())
    judge.walk(ordered)
    judge.close(attempts, drained)
    judge.match_faults()
    return judge.verdict


def _records(source, kind):
    if isinstance(source, (str, os.PathLike)):
        source = read_lines(source)
    for item in source:
        if isinstance(item, (str, os.PathLike)):
            yield from _records(item, kind)
        else:
            yield kind(**item) if isinstance(item, dict) else kind(*item)


class _Matching:
    """Gives each extra delivery a fault that explains it, moving earlier ones aside where that makes room: a bad choice
    must not look like a breach. Each fault explains as many as it had events in flight."""

    def __init__(self, faults):
        self.room = [fault.in_flight for fault in faults]
        self.explained = [set() for _ in faults]
        self.full = set()  # faults from which a search found no room; there will never be any

    def explain(self, extra):
        reached, queue = {}, deque()

        def reach(who, origin):
            for option in who.options:
                if option not in reached and option not in self.full:
                    reached[option] = (who, origin)
                    queue.append(option)

        reach(extra, None)
        while queue:
            fault = queue.popleft()
            if len(self.explained[fault]) < self.room[fault]:
                self._move(reached, fault)
                return True
            for who in self.explained[fault]:
                reach(who, fault)
        self.full.update(reached)
        return False

    def _move(self, reached, fault):
        while fault is not None:
            who, origin = reached[fault]
            self.explained[fault].add(who)
            if origin is not None:
                self.explained[origin].remove(who)
            fault = origin


class _Judge:
    def __init__(self, verdict, final):
        self.verdict, self.final = verdict, final
        self.receipts, self.faults = verdict.receipts, verdict.faults
        self.left, self.dead, self.archived = set(final.left), Counter(final.dead), Counter(final.archived or ())
        self.revived = {event_id for fault in self.faults for event_id in fault.revived}
        self.dropped = {event_id for fault in self.faults for event_id in fault.dropped}
        # What has an unknown outcome was committed if it is anywhere.
        seen = {receipt.id for receipt in self.receipts}.union(self.left, self.dead, self.archived)
        self.events = {event.id: event for event in verdict.events.values()
                       if event.commit == "yes" or event.commit == "unknown" and event.id in seen}
        self.last = {}  # id -> number of its last receipt so far
        self.taken, self.acked = set(), set()
        self.failures = defaultdict(list)  # id -> answers other than ack
        self.extras = []
        self.overlaps, self.overlapping = [], set()  # an Extra for each pair of requests; the numbers of those requests
        self.given_up = self.dropped.union(self.dead)
        self.receipts_of_given_up = defaultdict(list)  # id -> numbers
        for number, receipt in enumerate(self.receipts):
            if receipt.id in self.given_up:
                self.receipts_of_given_up[receipt.id].append(number)

    def violate(self, kind, event_id, text, key=None):
        event = self.verdict.events.get(event_id)
        self.verdict.violations.append(Violation(kind, event.key if event else key, event_id, f"event {event_id} {text}"))

    # --- the receipts, one by one ---

    def walk(self, ordered):
        lanes = self._lanes() if ordered else {}
        requests = defaultdict(list)
        for number, receipt in enumerate(self.receipts):
            event = self.events.get(receipt.id)
            if event is None:
                what = "rolled back" if receipt.id in self.verdict.events else "never inserted"
                self.violate("phantom", receipt.id, f"was delivered (receipt {number}) and {what}", receipt.key)
                continue
            self._check_content(event, receipt)
            if event.id in self.last:
                self._explain_again(receipt, number)
            if ordered and event.key is not None:
                if event.id not in self.last:
                    self._check_order(event, number, lanes[event.key])
                if receipt.relay is not None and receipt.end is not None:
                    self._check_exclusion(receipt, number, requests[event.key])
            if receipt.attempt is not None:
                self._check_attempt(receipt, number)
            self._note(receipt, number)

    def _lanes(self):
        """The ids of each key, the smallest last."""
        lanes = defaultdict(list)
        for event_id in sorted(self.events, reverse=True):
            lanes[self.events[event_id].key].append(event_id)
        return lanes

    def _note(self, receipt, number):
        self.last[receipt.id] = number
        if receipt.answer in TAKEN:
            self.taken.add(receipt.id)
            if receipt.answer != "silent":
                self.acked.add(receipt.id)
        if receipt.answer != "ack":
            self.failures[receipt.id].append(receipt.answer)

    def _check_content(self, event, receipt):
        if receipt.key != event.key:
            self.violate("key", event.id, f"of key {event.key!r} was delivered under key {receipt.key!r}")
        if receipt.hash != event.hash and receipt.hash is not None and event.hash is not None:
            self.violate("bytes", event.id, f"has payload {event.hash} and was delivered with {receipt.hash}")

    def _explain_again(self, receipt, number):
        """After a failure a relay tries again; after an acknowledgement only a fault explains it."""
        before = self.receipts[self.last[receipt.id]]
        if before.answer == "ack":
            text = f"was acknowledged (receipt {self.last[receipt.id]}) and came again (receipt {number})"
            self._needs_fault(text, before.id, self._faults(
                lambda fault: fault.may_touch(before) and fault.has_begun(number, receipt)
                and fault.may_be_of(before.relay, receipt.relay)))

    def _faults(self, fit):
        return tuple(index for index, fault in enumerate(self.faults) if fit(fault))

    def _needs_fault(self, text, event_id, options):
        self.extras.append(Extra(event_id, text, options, len(self.extras)))

    def _check_order(self, event, number, lane_ids):
        """Whatever the sink answered, and whatever became of the event later: a relay that sends it before its turn has only
        been lucky when it is refused. Takes off the lane what nothing has to wait for any more."""
        while lane_ids and lane_ids[-1] < event.id and self._is_settled(lane_ids[-1], number):
            lane_ids.pop()
        if lane_ids and lane_ids[-1] < event.id:
            self.violate("order", event.id, f"came (receipt {number}) while {lane_ids[-1]} was still to come")

    def _is_settled(self, event_id, number):
        """Acknowledged or given up. When a revived one was given up is not known."""
        if event_id in self.acked or event_id in self.revived:
            return True
        return event_id in self.given_up and self._was_given_up(event_id, number)

    def _was_given_up(self, event_id, number):
        """A dead letter is not sent any more: a receipt of it after that one needs a fault that has sent it."""
        explained = {}
        for later in self.receipts_of_given_up[event_id]:
            if later > number:
                receipt = self.receipts[later]
                explained[later] = self._faults(lambda fault, receipt=receipt, later=later: fault.may_touch(receipt)
                                                and fault.has_begun(later, receipt) and fault.may_be_of(receipt.relay))
        if not all(explained.values()):
            return False
        for later, options in explained.items():
            self._needs_fault(f"was given up before receipt {number} and came again (receipt {later})", event_id, options)
        return True

    def _check_exclusion(self, receipt, number, requests):
        """requests: those of this key that may still be open. Nobody knows how long one without an answer was."""
        requests[:] = [before for before in requests if self.receipts[before].end > receipt.at]
        for before in requests:
            if self.receipts[before].relay != receipt.relay:
                self._explain_overlap(before, number)
        if receipt.answer not in ("silent", "late"):
            requests.append(number)

    def _explain_overlap(self, before, number):
        """One of the two relays had lost its claim, and it had not noticed yet. Which one is not known, so of pairs that
        share a request only the first counts."""
        other, receipt = self.receipts[before], self.receipts[number]
        text = f"came from {receipt.relay} while event {other.id} of its key was in delivery by {other.relay}"
        options = self._faults(lambda fault: fault.has_begun(number, receipt) and any(
            fault.may_touch(each) and fault.may_be_of(each.relay) for each in (other, receipt)))
        if not options:
            self.violate("exclusion", receipt.id, text)
        elif not self.overlapping & {before, number}:
            self.overlapping |= {before, number}
            self.overlaps.append(Extra(receipt.id, text, options, len(self.overlaps)))

    def _check_attempt(self, receipt, number):
        """What is surely the event's fault counts. At each fault a relay that dies may take the count of an attempt with
        it, and an attempt may fail that no sink saw."""
        failures = self.failures.get(receipt.id, ())
        least, most = 1 + failures.count("refuse"), 1 + len(failures)
        if receipt.id in self.revived:
            least = 1  # a retry may begin anew
        if least <= receipt.attempt <= most:
            return
        begun = sum(fault.in_flight > 0 and fault.has_begun(number, receipt) for fault in self.faults)
        if not least - begun <= receipt.attempt <= most + begun:
            self.violate("attempt", receipt.id, f"came as attempt {receipt.attempt} after {len(failures)} failures")

    # --- the end ---

    def close(self, attempts, drained):
        for event_id in self.events:
            self._check_place(event_id)
        for event_id in self.left.union(self.dead, self.archived) - self.events.keys():
            self.violate("phantom", event_id, "is in the database and was never committed")
        self._check_waiting(attempts, drained)
        for event_id in self.dead.keys() & self.events.keys():
            self._check_cause(event_id, "dead", attempts)
        self._count()

    def _check_place(self, event_id):
        """Each event is in exactly one place."""
        left, dead, archived = event_id in self.left, self.dead[event_id], self.archived[event_id]
        if left + dead + archived > 1:
            self.violate("account", event_id, f"is {left:d} times in the table, {dead} dead letters and {archived} times archived")
        if left or dead:
            before = self.receipts[self.last[event_id]] if event_id in self.last else None
            if before and before.answer == "ack":
                place = "still in the table" if left else "a dead letter"
                self._needs_fault(f"was acknowledged (receipt {self.last[event_id]}) and is {place}", event_id, self._faults(
                    lambda fault: fault.may_touch(before) and fault.may_be_of(before.relay)))
        elif event_id not in self.acked and event_id not in self.dropped:
            told = "taken, not acknowledged" if event_id in self.taken else "never taken"
            self.violate("lost", event_id, f"was {told}, and is {'in the archive' if archived else 'gone'}")
        elif not archived and self.final.archived is not None and event_id not in self.dropped:
            self.violate("account", event_id, "was delivered and is not in the archive")

    def _check_waiting(self, attempts, drained):
        heads = {}
        for event_id in sorted(self.left & self.events.keys()):
            heads.setdefault(lane(self.events[event_id].key, event_id), event_id)
        for row in self.final.parked:
            if heads.get(lane(row.key, row.id)) != row.id:
                self.violate("account", row.id, "is what its key waits for, and not the first of it in the table", row.key)
            self._check_cause(row.id, "parked", attempts if row.closed else 1)
        closed = {lane(row.key, row.id) for row in self.final.parked if row.closed}
        for name, event_id in heads.items():
            if drained and name not in closed:
                self.violate("stuck", event_id, "is still in the table, and its key is not closed")

    def _check_cause(self, event_id, state, attempts):
        failures = self.failures.get(event_id, ())
        event = self.verdict.events.get(event_id)
        unseen = sum(fault.in_flight > 0 for fault in self.faults)  # each may make an attempt fail that no sink saw
        needed = max(1, attempts - unseen)
        if len(failures) < needed and "reject" not in failures and not (event and event.doomed):
            self.violate("cause", event_id, f"is {state} after {len(failures)} failures, and takes {needed}")

    def _count(self):
        kept = self.left.union(self.dead, self.dropped)
        self.verdict.counts = {
            "produced": len(self.events), "delivered": len(self.acked - kept), "dead": len(self.dead.keys() & self.events.keys()),
            "left": len(self.left & self.events.keys()), "dropped": len(self.dropped - self.left - self.dead.keys())}
        takes = sum(receipt.answer in TAKEN for receipt in self.receipts if receipt.id in self.events)
        self.verdict.duplicates = takes - len(self.taken)

    def match_faults(self):
        """G3, G4 and G5, once all is known. One event is in flight once at one fault."""
        overlapping = _Matching(self.faults)
        for overlap in self.overlaps:
            if not overlapping.explain(overlap):
                self.violate("exclusion", overlap.id, f"{overlap.text}, and the faults had no more events in flight")
        matching, extras_of, faults_of = _Matching(self.faults), Counter(), defaultdict(set)
        for extra in self.extras:
            extras_of[extra.id] += 1
            faults_of[extra.id].update(extra.options)
            if not extra.options:
                self.violate("duplicate", extra.id, f"{extra.text}, and no fault explains it")
            elif extras_of[extra.id] > len(faults_of[extra.id]) or not matching.explain(extra):
                self.violate("bound", extra.id, f"{extra.text}, and the faults had no more events in flight")
        self.verdict.duplicates_by_fault = [len(extras) for extras in matching.explained]
