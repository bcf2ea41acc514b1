"""The history check itself: legal histories pass, and one that was tampered with is found out by the right verdict."""

import random
import time

import pytest

from tests.support.history import Event, Fault, Final, Parked, Receipt, check
from tests.support.journal import Journal, digest, read_lines
from tests.support.verdict import HistoryError

EVENTS = [Event(1, "a"), Event(2, "b"), Event(3, "a"), Event(4, None), Event(5, "b"), Event(6, "a"), Event(7, None)]
KEYS = {event.id: event.key for event in EVENTS}
ALL = (1, 2, 3, 4, 5, 6, 7)


def receipts(*ids):
    """An id, or (id, answer), or (id, answer, relay, at, end)."""
    items = [item if isinstance(item, tuple) else (item, "ack") for item in ids]
    return [Receipt(event_id, KEYS.get(event_id), answer, *((relay, None, None, *times) if relay else ()))
            for event_id, answer, relay, *times in (item if len(item) > 2 else (*item, None) for item in items)]


def judge(*ids, faults=(), left=(), dead=(), archived=None, parked=(), events=EVENTS, **options):
    return check(events, receipts(*ids), faults, Final(list(left), list(dead), archived, list(parked)), **options)


def kinds(*ids, **options):
    return judge(*ids, **options).kinds()


def killed(in_flight, receipts=0, **narrower):
    return Fault("SIGKILL", in_flight, receipts=receipts, **narrower)


def with_outcomes(**outcomes):
    """The events, some of them with another outcome: e6="no"."""
    return [event._replace(commit=outcomes.get(f"e{event.id}", "yes")) for event in EVENTS]


def request(event_id, relay, at, end, answer="ack"):
    return (event_id, answer, relay, at, end)


# In two keys: x has not answered when y comes.
TWICE_AT_ONCE = (request(1, "x", 1, 5), request(2, "x", 1, 5), request(3, "y", 3, 4), request(5, "y", 3, 4), request(6, "y", 6, 7))

LEGAL = {
    "every event once, in order": (ALL, {}),
    "keys are independent": ((2, 5, 1, 3, 6, 7, 4), {}),
    "events without a key have no order": ((7, 4, 1, 2, 3, 5, 6), {}),
    "nothing was produced and nothing came": ((), {"events": []}),
    "a crash repeats what was in flight": ((1, 2, 3, 4, 3, 5, 6, 7), {"faults": [killed(5, receipts=4)]}),
    "a crash repeats a whole prefix of a key": ((1, 3, 1, 3, 6, 2, 5, 4, 7), {"faults": [killed(2)]}),
    "a crash of one relay, and a sink that cannot tell relays apart": ((1, *ALL), {"faults": [killed(1, relay="x")]}),
    "two crashes repeat an event twice": ((1, 1, 1, 2, 3, 4, 5, 6, 7), {"faults": [killed(1, 1), killed(1, 2)]}),
    "the reply of the relay's COMMIT is lost, and nothing was committed": (
        (1, 2, 3, 1, 2, 3, 4, 5, 6, 7), {"faults": [Fault("reply of COMMIT lost", 3, receipts=3)]}),
    "the reply of the relay's COMMIT is lost, and all was committed": (ALL, {"faults": [Fault("reply of COMMIT lost", 3, receipts=3)]}),
    "a producer does not know whether it committed: it had": (ALL, {"events": with_outcomes(e6="unknown")}),
    "a producer does not know whether it committed: it had not": ((1, 2, 3, 4, 5, 7), {"events": with_outcomes(e6="unknown")}),
    "a transaction of the producer's is rolled back": ((1, 2, 4, 5, 6, 7), {"events": with_outcomes(e3="no")}),
    "a refused event is tried again": (((1, "refuse"), (1, "refuse"), 1, 2, 3, 4, 5, 6, 7), {}),
    "a rejected event dies, and its key goes on": ((2, (1, "reject"), 3, 4, 5, 6, 7), {"dead": [1]}),
    "an event dies after its last attempt": (((1, "refuse"), (1, "refuse"), 2, 3, 4, 5, 6, 7), {"dead": [1], "attempts": 2}),
    "an event that no sink could take dies unsent": ((2, 3, 4, 5, 6, 7), {"dead": [1], "events": [Event(1, "a", doomed=True), *EVENTS[1:]]}),
    "a closed key keeps its later events": ((2, (1, "reject"), 4, 5, 7), {"left": [1, 3, 6], "parked": [Parked(1, "a", True)]}),
    "a closed event without a key keeps nobody": ((1, 2, 3, 5, 6, 7, (4, "reject")), {"left": [4], "parked": [Parked(4, None, True)]}),
    "a key waits for its retry when the relays are stopped": (
        (2, (1, "refuse"), 4, 5, 7), {"left": [1, 3, 6], "parked": [Parked(1, "a", False)], "drained": False}),
    "the relays are stopped with work left": ((2, 4, 1), {"left": [3, 5, 6, 7], "drained": False}),
    "a key is released and continued by another relay": (
        (request(1, "x", 1, 2), request(3, "y", 2, 3), request(6, "x", 4, 5), 2, 4, 5, 7), {}),
    "a lane that waits lets others be delivered at the same time": (
        (request(1, "x", 1, 9), request(2, "y", 2, 3), request(4, "z", 2, 3), request(3, "x", 10, 11), request(6, "x", 12, 13), 5, 7), {}),
    "the receiver takes it and answers too late": (((1, "silent"), 1, 2, 3, 4, 5, 6, 7), {}),
    "the receiver takes it, and the answer may have come in time": (((1, "late"), 3, 2, (6, "late"), 6, 4, 5, 7), {}),
    "an event is taken, its answer is lost, and then it is refused until it dies": (
        ((1, "silent"), (1, "refuse"), (1, "refuse"), 2, 3, 4, 5, 6, 7), {"dead": [1], "attempts": 3}),
    "a sink that is away costs nothing": (((1, "away"), (2, "away"), 1, 2, 3, 4, 5, 6, 7), {}),
    "a dead letter is retried after its key went on": (
        ((1, "reject"), 2, 3, 4, 5, 6, 7, 1), {"faults": [Fault("dead retry", revived=[1])]}),
    "a dead letter is retried and dies again": (
        ((1, "reject"), 2, 3, 4, 5, 6, 7, (1, "reject")), {"dead": [1], "faults": [Fault("dead retry", revived=[1])]}),
    "dead letters of one key are retried after it went on": (
        ((1, "reject"), (3, "reject"), 6, 2, 4, 5, 7, 1, 3), {"faults": [Fault("dead retry", revived=[1, 3])]}),
    "an event that died unsent is retried after its key went on": (
        (2, 3, 4, 5, 6, 7, 1), {"faults": [Fault("dead retry", revived=[1])]}),
    "an event is taken, a crash hides it, it dies, and a retry delivers it again": (
        (1, 2, (1, "refuse"), 3, 4, 5, 6, 7, 1), {"faults": [killed(1, receipts=2), Fault("dead retry", revived=[1])]}),
    "two events of a key die one after the other": (((1, "reject"), (3, "reject"), 6, 2, 4, 5, 7), {"dead": [1, 3]}),
    "an event dies after its predecessor was acknowledged": ((1, (3, "silent"), (3, "refuse"), 6, 2, 4, 5, 7), {"dead": [3]}),
    "a request for a dead letter, the first of it that arrives, comes when its key has gone on": (
        (3, (1, "refuse"), 2, 4, 5, 6, 7), {"dead": [1], "faults": [killed(1)]}),
    "a dead letter is dropped": (((1, "reject"), 2, 3, 4, 5, 6, 7), {"faults": [Fault("dead drop", dropped=[1])]}),
    "a relay that has lost its claim does not notice at once": (
        (request(1, "x", 1, 5), request(1, "y", 3, 4), request(3, "y", 6, 7), request(6, "y", 8, 9), 2, 4, 5, 7),
        {"faults": [Fault("connection lost", 1, relay="x", at=2, until=5)]}),
    "two relays that have lost their claims do not notice at once": (
        (*TWICE_AT_ONCE, 4, 7), {"faults": [killed(2, relay="x", at=2)]}),
    "a relay that has lost its claim is in one request while another makes two": (
        (request(1, "x", 1, 9), request(3, "y", 2, 3), request(6, "y", 4, 5), 2, 4, 5, 7), {"faults": [killed(1, relay="x")]}),
    "a relay that has lost its claim makes two requests while another is in one": (
        (request(1, "x", 1, 9), request(3, "y", 2, 3), request(6, "y", 4, 5), 2, 4, 5, 7), {"faults": [killed(1, relay="y")]}),
    "a relay that has lost its claim is in two requests while another makes one": (
        (request(1, "x", 1, 9), request(3, "x", 2, 8), request(6, "y", 3, 4), 2, 4, 5, 7), {"faults": [killed(1, relay="x")]}),
    "nobody knows how long a request was open that got no answer": (
        (request(1, "x", 1, 9, "silent"), request(1, "y", 3, 4), 3, 6, 2, 4, 5, 7), {}),
    "nobody knows how long a request was open whose answer was late": (
        (request(1, "x", 1, 9, "late"), request(3, "y", 3, 4), 6, 2, 4, 5, 7), {}),
    "a request that was given up arrives when its event is a dead letter and its key goes on": (
        ((1, "refuse"), 3, (1, "refuse"), 2, 4, 5, 6, 7), {"dead": [1], "faults": [killed(1, receipts=1)]}),
    "an attempt fails that no sink saw, and the next is the last": (
        ((1, "refuse"), *ALL[1:]), {"dead": [1], "attempts": 2, "faults": [killed(1)]}),
    "a crash leaves what was acknowledged in the table": (ALL, {"left": [6], "drained": False, "faults": [killed(1)]}),
    "every delivered event is in the archive": (((1, "reject"), *ALL[1:]), {"dead": [1], "archived": list(ALL[1:])}),
    "a queue without order": ((6, 3, 1, 7, 5, 4, 2), {"ordered": False}),
}


@pytest.mark.parametrize("name", LEGAL)
def test_a_legal_history_passes(name):
    ids, options = LEGAL[name]
    judge(*ids, **options).require()


# One step beyond each of the above.
ILLEGAL = [
    ({"lost"}, (1, 2, 3, 4, 5, 7), {}),
    ({"lost"}, (), {}),
    ({"lost", "order"}, (1, 2, 4, 5, 6, 7), {}),
    ({"lost"}, (*ALL[:5], (6, "refuse"), 7), {}),
    ({"lost"}, (*ALL[:5], (6, "silent"), 7), {}),
    ({"lost"}, (1, 2, 3, 4, 5, 7), {"archived": list(ALL)}),
    ({"phantom"}, (*ALL, 8), {}),
    ({"phantom"}, ALL, {"events": with_outcomes(e6="no")}),
    ({"phantom"}, (1, 2, 3, 4, 5, 7), {"events": with_outcomes(e6="no"), "dead": [6]}),
    ({"phantom"}, ALL, {"archived": [*ALL, 8]}),
    ({"order"}, (1, 2, 6, 3, 4, 5, 7), {}),
    ({"order"}, (5, 2, 1, 3, 4, 6, 7), {}),
    ({"order"}, ((1, "refuse"), 3, 1, 2, 4, 5, 6, 7), {}),
    ({"order"}, ((1, "silent"), 3, 1, 2, 4, 5, 6, 7), {}),
    ({"order"}, ((1, "refuse"), 3, (1, "refuse"), 2, 4, 5, 6, 7), {"dead": [1], "attempts": 2}),
    *[({"order"}, (1, 2, (6, answer), 3, 6, 4, 5, 7), {}) for answer in ("silent", "late", "refuse", "reject", "away")],
    ({"order"}, ((3, "late"), 1, (3, "refuse"), 6, 2, 4, 5, 7), {"dead": [3]}),
    ({"order"}, ((3, "silent"), 1, (3, "refuse"), 6, 2, 4, 5, 7), {"dead": [3]}),
    ({"order"}, ((3, "reject"), 1, 6, 2, 4, 5, 7), {"dead": [3]}),
    ({"order"}, ((3, "reject"), (1, "reject"), 6, 2, 4, 5, 7), {"dead": [1, 3]}),
    ({"order"}, ((3, "reject"), 1, 6, 2, 4, 5, 7), {"faults": [Fault("dead drop", dropped=[3])]}),
    ({"order"}, ((3, "reject"), 1, 6, 2, 4, 5, 7, 3), {"faults": [Fault("dead retry", revived=[3])]}),
    ({"order"}, ((1, "refuse"), 3, (1, "refuse"), 2, 4, 5, 6, 7), {"faults": [Fault("dead drop", dropped=[1])]}),
    ({"order"}, (request(1, "x", 1, 2, "refuse"), request(3, "y", 3, 4), request(1, "x", 5, 6, "refuse"), 6, 2, 4, 5, 7),
     {"dead": [1], "faults": [killed(1, relay="y")]}),
    ({"order"}, (2, 6, 3, 4, 5, 7), {"dead": [1], "events": [Event(1, "a", doomed=True), *EVENTS[1:]]}),
    ({"order", "stuck"}, (2, 3, 6, 4, 5, 7), {"left": [1]}),
    ({"duplicate"}, (1, *ALL), {}),
    ({"duplicate"}, (*ALL, 1), {}),
    ({"duplicate"}, (*ALL, (1, "refuse")), {}),
    ({"duplicate"}, ((1, "silent"), 1, *ALL), {}),
    ({"duplicate"}, ALL, {"left": [6], "drained": False}),
    ({"duplicate"}, ALL, {"dead": [6], "drained": False, "events": [event._replace(doomed=True) for event in EVENTS]}),
    ({"duplicate"}, (1, *ALL), {"faults": [Fault("SIGTERM", 0)]}),
    ({"duplicate"}, (1, *ALL), {"faults": [killed(5, receipts=4)]}),
    ({"duplicate"}, (1, *ALL), {"faults": [killed(5, ids=[2, 3])]}),
    ({"duplicate"}, (request(1, "x", 1, 2), request(1, "x", 3, 4), *ALL[1:]), {"faults": [killed(5, relay="y")]}),
    ({"duplicate"}, (request(1, "x", 1, 2), request(1, "x", 3, 4), *ALL[1:]), {"faults": [killed(5, at=9)]}),
    ({"duplicate"}, (request(1, "x", 1, 2), request(1, "x", 3, 4), *ALL[1:]), {"faults": [killed(5, until=0.5)]}),
    ({"duplicate"}, ((1, "reject"), 2, 3, 1, 1, 4, 5, 6, 7), {"faults": [Fault("dead retry", revived=[1])]}),
    ({"duplicate"}, ((1, "reject"), 2, 3, 1, 4, 5, 6, 7), {"dead": [1], "faults": [Fault("dead retry", revived=[1])]}),
    ({"duplicate"}, (1, (1, "refuse"), 2, 3, 4, 5, 6, 7), {"dead": [1], "faults": [Fault("dead retry", revived=[1])]}),
    ({"duplicate"}, (*ALL[:5], request(6, "x", 1, 2), 7), {"left": [6], "drained": False, "faults": [killed(1, relay="y")]}),
    ({"bound"}, ((1, "reject"), 2, 3, 1, 1, 1, 4, 5, 6, 7), {"faults": [Fault("dead retry", revived=[1]), killed(1)]}),
    ({"bound"}, (1, 2, 1, 2, 3, 4, 5, 6, 7), {"faults": [killed(1)]}),
    ({"bound"}, (1, 1, *ALL), {"faults": [killed(9)]}),
    ({"bound"}, (1, *ALL), {"faults": [killed(1)], "left": [7], "drained": False}),
    ({"exclusion"}, (request(1, "x", 1, 5), request(3, "y", 3, 4), 6, 2, 4, 5, 7), {}),
    ({"exclusion"}, (request(1, "x", 1, 5, "refuse"), request(1, "y", 3, 4), 3, 6, 2, 4, 5, 7), {}),
    ({"exclusion"}, (request(1, "x", 1, 5), request(3, "y", 3, 4), 6, 2, 4, 5, 7), {"faults": [killed(1, relay="z")]}),
    ({"exclusion"}, (request(1, "x", 2, 5), request(3, "y", 3, 4), 6, 2, 4, 5, 7), {"faults": [killed(1, relay="x", until=1)]}),
    ({"exclusion"}, (request(1, "x", 1, 9, "ack"), request(3, "y", 2, 3, "silent"), 3, 6, 2, 4, 5, 7), {}),
    ({"exclusion"}, (*TWICE_AT_ONCE, 4, 7), {"faults": [killed(1)]}),
    ({"exclusion"}, (*TWICE_AT_ONCE, 4, 7), {"faults": [killed(2, ids=[1, 3])]}),
    ({"exclusion"}, (*TWICE_AT_ONCE, 4, 7), {"faults": [Fault("SIGTERM", 0)]}),
    ({"exclusion"}, (*TWICE_AT_ONCE, 4, 7), {"faults": [killed(2, at=9)]}),
    ({"order"}, ((1, "refuse"), 3, (1, "refuse"), 2, 4, 5, 6, 7), {"dead": [1], "faults": [killed(1, receipts=4)]}),
    ({"order"}, ((1, "refuse"), 3, (1, "refuse"), 2, 4, 5, 6, 7), {"dead": [1], "faults": [killed(1, ids=[2])]}),
    ({"order"}, ((1, "refuse"), 3, (1, "refuse"), 2, 4, 5, 6, 7), {"dead": [1], "faults": [Fault("SIGTERM", 0)]}),
    ({"bound"}, ((1, "refuse"), 3, (1, "refuse"), (1, "refuse"), 2, 4, 5, 6, 7), {"dead": [1], "faults": [killed(9)]}),
    ({"bound"}, ((1, "refuse"), 3, (1, "refuse"), (2, "refuse"), 5, (2, "refuse"), 4, 6, 7), {"dead": [1, 2], "faults": [killed(1)]}),
    ({"stuck"}, (1, 2, 4, 5, 7), {"left": [3, 6]}),
    ({"stuck"}, (1, 2, 3, 5, 6, 7), {"left": [4]}),
    ({"stuck"}, (2, (1, "reject"), 4, 7), {"left": [1, 3, 5, 6], "parked": [Parked(1, "a", True)]}),
    ({"stuck"}, (2, (1, "refuse"), 4, 5, 7), {"left": [1, 3, 6], "parked": [Parked(1, "a", False)]}),
    ({"cause"}, (2, 4, 5, 7), {"left": [1, 3, 6], "parked": [Parked(1, "a", True)]}),
    ({"cause"}, ((1, "refuse"), *ALL[1:]), {"dead": [1], "attempts": 2}),
    ({"cause"}, ALL[1:], {"dead": [1]}),
    ({"cause"}, ALL[1:], {"dead": [1], "faults": [killed(9)]}),
    ({"cause"}, ((1, "refuse"), *ALL[1:]), {"dead": [1], "attempts": 2, "faults": [Fault("SIGTERM", 0)]}),
    ({"cause"}, ((1, "refuse"), *ALL[1:]), {"dead": [1], "attempts": 3, "faults": [killed(1)]}),
    ({"account"}, ((1, "reject"), *ALL[1:]), {"dead": [1], "left": [1], "drained": False}),
    ({"account"}, ((1, "reject"), *ALL[1:]), {"dead": [1, 1]}),
    ({"account"}, ALL, {"archived": ALL[1:]}),
    ({"account"}, ALL, {"archived": [*ALL, 1]}),
    ({"cause"}, ALL[1:], {"dead": [1], "faults": [Fault("dead retry", revived=[1])]}),
    ({"account", "order"}, (2, 4, 5, 7, (3, "reject")), {"left": [1, 3, 6], "drained": False, "parked": [Parked(3, "a", True)]}),
    ({"account"}, (*ALL[:5], (6, "reject"), 6, 7), {"parked": [Parked(6, "a", True)]}),
]


@pytest.mark.parametrize("found, ids, options", ILLEGAL)
def test_one_step_beyond_is_found(found, ids, options):
    assert kinds(*ids, **options) == found


def test_what_an_event_carries_is_compared():
    event = Event(1, "a", hash=digest(b"x\0y"))
    for change, found in [({}, set()), ({"key": "b"}, {"key"}), ({"key": None}, {"key"}), ({"hash": digest(b"x")}, {"bytes"}),
                          ({"hash": None}, set()), ({"hash": digest(None)}, {"bytes"}), ({"attempt": 2}, {"attempt"})]:
        receipt = Receipt(1, "a", hash=event.hash, attempt=1)._replace(**change)
        assert check([event], [receipt]).kinds() == found, change


@pytest.mark.parametrize("attempts, answers, found", [
    ((1, 2, 3), ("refuse", "refuse", "ack"), set()),
    ((1, 1, 2), ("away", "refuse", "ack"), set()),
    ((1, 2, 2), ("silent", "away", "ack"), set()),
    ((1, 1), ("refuse", "ack"), {"attempt"}),
    ((1, 3), ("refuse", "ack"), {"attempt"}),
])
def test_attempts_are_counted(attempts, answers, found):
    log = [Receipt(1, "a", answer, attempt=attempt) for attempt, answer in zip(attempts, answers)]
    assert check(EVENTS[:1], log).kinds() == found
    assert check(EVENTS[:1], log, [Fault("SIGTERM", 0)]).kinds() == found, "nothing became uncertain"
    uncertain = check(EVENTS[:1], log, [killed(1)])
    assert uncertain.ok, "a relay that dies may take the count of one attempt with it"


@pytest.mark.parametrize("attempt, faults, found", [
    (4, [killed(9)], {"attempt"}),
    (4, [killed(1), killed(1)], set()),
    (3, [killed(1, receipts=2)], {"attempt"}),
    (3, [killed(1, receipts=1)], set()),
])
def test_a_fault_explains_one_attempt_that_no_sink_saw(attempt, faults, found):
    log = [Receipt(1, "a", "refuse", attempt=1), Receipt(1, "a", "ack", attempt=attempt)]
    assert check(EVENTS[:1], log, faults).kinds() == found


@pytest.mark.parametrize("attempts, found", [((1, 2, 1), set()), ((1, 2, 3), set()), ((1, 2, 4), {"attempt"})])
def test_a_retry_may_begin_to_count_anew(attempts, found):
    log = [Receipt(1, "a", answer, attempt=attempt) for attempt, answer in zip(attempts, ("refuse", "refuse", "ack"))]
    assert check(EVENTS[:1], log, [Fault("dead retry", revived=[1])]).kinds() == found


def test_a_fault_is_given_to_the_duplicate_that_no_other_explains():
    """Whichever comes first: the first fault explains both duplicates, the second only one of them."""
    wide, narrow = killed(1), killed(1, ids=[2])
    for faults in ([wide, narrow], [narrow, wide]):
        for log in ((1, 2, 1, 2, 3, 4, 5, 6, 7), (1, 2, 2, 1, 3, 4, 5, 6, 7)):
            assert judge(*log, faults=faults).require().duplicates_by_fault == [1, 1]


def test_the_counts_add_up():
    verdict = judge((1, "reject"), 2, 3, 4, 3, (5, "refuse"), 7, dead=[1], left=[5, 6], drained=False, faults=[killed(1)])
    assert verdict.ok and verdict.duplicates == 1 and verdict.duplicates_by_fault == [1]
    assert verdict.counts == {"produced": 7, "delivered": 4, "dead": 1, "left": 2, "dropped": 0}


@pytest.mark.parametrize("where", ["left", "dead", "dropped"])
def test_what_was_taken_and_is_kept_all_the_same_is_not_counted_as_delivered(where):
    faults = [killed(1), Fault("dead drop", dropped=[6])] if where == "dropped" else [killed(1)]
    kept = {} if where == "dropped" else {where: [6]}
    counts = judge(*ALL, (6, "refuse"), faults=faults, drained=False, **kept).require().counts
    assert counts == {"produced": 7, "delivered": 6, "dead": 0, "left": 0, "dropped": 0} | {where: 1}


def test_a_phantom_counts_as_nothing():
    verdict = judge(*ALL[:5], 7, 9, left=[6, 8], dead=[10], drained=False)
    assert verdict.kinds() == {"phantom"}
    assert verdict.counts == {"produced": 7, "delivered": 6, "dead": 0, "left": 1, "dropped": 0}


def test_the_report_shows_the_smallest_offending_history_the_faults_and_the_seed():
    log = [Receipt(event_id, KEYS[event_id], *rest) for event_id, *rest in
           [(1,), (2,), (6, "ack", "x"), (3, "refuse"), (3, "ack", None, 2), (4,), (5,), (7,), (7,)]]
    verdict = check(EVENTS, log, [Fault("SIGTERM of relay 2", receipts=3)], seed=812)
    with pytest.raises(HistoryError) as raised:
        verdict.require()
    assert str(raised.value).splitlines() == [
        "seed 812",
        "order (G2: delivered first while a smaller id of its key had no acknowledgement): 1,"
        " first: event 6 came (receipt 2) while 3 was still to come",
        "duplicate (G3: delivered again without a fault that explains it): 1,"
        " first: event 7 was acknowledged (receipt 7) and came again (receipt 8), and no fault explains it",
        "event 7",
        "  inserted: 7",
        "  -------  SIGTERM of relay 2, 0 in flight",
        "  receipt 7: event 7",
        "  receipt 8: event 7 again",
        "key 'a'",
        "  inserted: 1 3 6",
        "  receipt 0: event 1",
        "  receipt 2: event 6 from x",
        "  -------  SIGTERM of relay 2, 0 in flight",
        "  receipt 3: event 3 refuse",
        "  receipt 4: event 3 again attempt 2",
        "produced 7 = delivered 7 + dead 0 + left 0 + dropped 0; 9 receipts, 1 duplicates, 1 faults",
    ]


def test_journals_are_files_and_those_of_several_sinks_are_merged(tmp_path):
    producers, faults, *sinks = (Journal(tmp_path / name) for name in ("producers", "faults", "sink-1", "sink-2"))
    for event in [Event(1, "a", commit="unknown"), *EVENTS]:
        producers.append(event)
    faults.append(killed(1, at=3.5))
    for at, event_id in enumerate((1, 2, 1, 3, 3, 4, 5, 6, 7)):
        sinks[at % 2].append({"id": event_id, "key": KEYS[event_id], "at": float(at), "end": at + 0.5})
    verdict = check(tmp_path / "producers", [each.path for each in sinks], tmp_path / "faults", seed=3)
    assert verdict.kinds() == {"duplicate"} and "receipt 0" in verdict.violations[0].text
    assert verdict.duplicates == 2 and verdict.duplicates_by_fault == [1]


def test_a_torn_last_line_did_not_happen_and_any_other_is_an_error(tmp_path):
    path = tmp_path / "journal"
    path.write_text('{"id":1}\n{"id":2}\n{"id":3')
    assert list(read_lines(path)) == [{"id": 1}, {"id": 2}]
    path.write_text('{"id":1}\n{"id":2\n{"id":3}\n')
    with pytest.raises(ValueError):
        list(read_lines(path))


def test_a_line_that_is_completed_while_it_is_read_did_not_happen_yet(tmp_path):
    path = tmp_path / "journal"
    path.write_text('{"id":1}\n{"id":2')
    lines = read_lines(path)
    assert next(lines) == {"id": 1}
    with open(path, "a", encoding="utf-8") as file:
        file.write('2}\n{"id":3}\n')
    assert not list(lines)
    assert list(read_lines(path)) == [{"id": 1}, {"id": 22}, {"id": 3}]


def test_a_misspelt_field_is_refused():
    with pytest.raises(TypeError, match="comit"):
        check([{"id": 1, "key": "a", "comit": "yes"}], [])


@pytest.mark.parametrize("seed", range(20))
def test_every_single_tampering_of_a_random_history_is_found(seed):
    rng = random.Random(seed)
    events = [Event(number, rng.choice(["a", "b", "c", None])) for number in range(1, 60)]
    lanes = {}
    for event in events:
        lanes.setdefault(event.key if event.key else event.id, []).append(event)
    log = []
    while lanes:
        name = rng.choice(sorted(lanes, key=str))
        event = lanes[name].pop(0)
        log.append(Receipt(event.id, event.key))
        if not lanes[name]:
            del lanes[name]
    check(events, log).require()
    at = rng.randrange(len(log))
    assert "lost" in check(events, log[:at] + log[at + 1:]).kinds()
    assert "duplicate" in check(events, log + [log[at]]).kinds()
    of_a = [number for number, receipt in enumerate(log) if receipt.key == "a"]
    first, second = sorted(rng.sample(of_a, 2))
    log[first], log[second] = log[second], log[first]
    assert "order" in check(events, log).kinds()


@pytest.mark.deep
def test_a_million_events_with_a_hundred_faults_take_seconds():
    """15 s on two busy cores; what is not linear would take hours."""
    count, faults = 1_000_000, 100
    events = [Event(number, str(number % 20000)) for number in range(count)]
    log = [Receipt(number, str(number % 20000), relay=f"r{number % 4}", attempt=1, at=float(number), end=number + 0.5)
           for number in range(count)]
    log += [receipt._replace(at=receipt.at + 0.75, end=receipt.at + 0.8) for receipt in log[::100]]
    kills = [Fault("SIGKILL", 100, at=number + 0.7, until=number + 10000) for number in range(0, count, count // faults)]
    started = time.monotonic()
    verdict = check(events, log, kills).require()
    took = time.monotonic() - started
    print(f"{took:.1f} s")
    assert verdict.duplicates == count // 100 and took < 120
