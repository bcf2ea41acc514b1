"""The history checker itself: legal histories pass, and one that was tampered with is found out by the right verdict."""

import random

import pytest

from tests.support.history import Event, Fault, History, HistoryError

EVENTS = [Event(1, "a"), Event(2, "b"), Event(3, "a"), Event(4, None), Event(5, "b"), Event(6, "a"), Event(7, None)]
KEYS = dict(EVENTS)


def receipts(*ids):
    return [(event_id, KEYS.get(event_id)) for event_id in ids]


def kinds(*ids, **options):
    return History(EVENTS, receipts(*ids), **options).kinds()


@pytest.mark.parametrize("order", [
    (1, 2, 3, 4, 5, 6, 7),
    (2, 5, 1, 3, 6, 7, 4),  # keys are independent
    (7, 4, 1, 2, 3, 5, 6),  # events without a key have no order
])
def test_every_interleaving_of_keys_is_legal(order):
    assert History(EVENTS, receipts(*order)).check().duplicates == 0


def test_a_missing_event_is_lost():
    assert kinds(1, 2, 3, 4, 5, 7) == {"lost"}
    assert kinds(1, 2, 3, 5, 6, 7) == {"lost"}
    assert kinds() == {"lost"}


def test_a_gap_is_lost_and_out_of_order():
    assert kinds(1, 2, 4, 5, 6, 7) == {"lost", "order"}


def test_an_event_that_was_never_committed_is_a_phantom():
    assert kinds(1, 2, 3, 4, 5, 6, 7, 8) == {"phantom"}


def test_an_event_under_another_key_is_a_phantom():
    swapped = [(event_id, "b" if event_id == 6 else key) for event_id, key in receipts(1, 2, 3, 4, 5, 6, 7)]
    assert History(EVENTS, swapped).kinds() == {"phantom", "lost"}
    keyless = [(event_id, key or "a") for event_id, key in receipts(1, 2, 3, 4, 5, 6, 7)]
    assert "phantom" in History(EVENTS, keyless).kinds()


def test_two_events_of_one_key_in_exchanged_order_are_found():
    assert kinds(1, 2, 6, 3, 4, 5, 7) == {"order"}
    assert kinds(5, 2, 1, 3, 4, 6, 7) == {"order"}


def test_a_duplicate_without_a_fault_is_found_whether_late_or_at_once():
    assert kinds(1, 1, 2, 3, 4, 5, 6, 7) == {"duplicate"}
    assert kinds(1, 2, 3, 4, 5, 6, 7, 1) == {"duplicate"}
    assert kinds(1, 2, 3, 4, 4, 5, 6, 7) == {"duplicate"}


def test_a_duplicate_before_the_fault_is_not_the_faults():
    fault = Fault("SIGKILL", receipts=4, in_flight=5)
    assert kinds(1, 1, 2, 3, 4, 5, 6, 7, faults=[fault]) == {"duplicate"}
    assert kinds(1, 2, 3, 4, 3, 5, 6, 7, faults=[fault]) == set()


def test_duplicates_are_counted_against_what_was_in_flight():
    faults = [Fault("SIGKILL", 2, 1), Fault("SIGKILL", 6, 2)]
    assert kinds(1, 2, 1, 3, 4, 5, 6, 5, 6, 7, faults=faults) == set()
    assert kinds(1, 2, 1, 2, 3, 4, 5, 6, 7, faults=faults) == {"duplicate"}
    assert kinds(1, 2, 3, 4, 5, 6, 4, 5, 6, 7, 7, faults=faults) == {"duplicate"}
    history = History(EVENTS, receipts(1, 2, 1, 3, 4, 5, 6, 5, 6, 7), faults)
    assert history.duplicates == 3 and history.duplicates_by_fault == [1, 2]


def test_a_redelivered_prefix_does_not_count_as_disorder_and_a_skipped_event_still_does():
    fault = Fault("SIGKILL", 0, 10)
    assert kinds(1, 3, 1, 3, 6, 2, 5, 4, 7, faults=[fault]) == set()
    assert kinds(1, 6, 1, 3, 6, 2, 5, 4, 7, faults=[fault]) == {"order"}


def test_nothing_waits_for_a_dead_letter_and_it_is_not_lost():
    assert kinds(2, 3, 4, 5, 6, 7, dead=[1]) == set()
    assert kinds(2, 3, 4, 5, 6, 7, 1, dead=[1]) == set()  # retried later
    assert kinds(2, 6, 3, 4, 5, 7, dead=[1]) == {"order"}


def test_the_report_shows_the_offending_key_and_the_faults():
    history = History(EVENTS, receipts(1, 2, 6, 3, 3, 4, 5, 7), [Fault("SIGKILL of relay 2", 3, 1)])
    with pytest.raises(HistoryError) as raised:
        history.check()
    assert str(raised.value).splitlines() == [
        "order: 1, first: event 6 was received first while 3 was still to come",
        "key 'a'",
        "  committed: 1 3 6",
        "  receipt 0: event 1",
        "  receipt 2: event 6",
        "  -------  SIGKILL of relay 2",
        "  receipt 3: event 3",
        "  receipt 4: event 3 again",
    ]


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
        log.append(lanes[name].pop(0))
        if not lanes[name]:
            del lanes[name]
    assert History(events, log).kinds() == set()
    at = rng.randrange(len(log))
    assert "lost" in History(events, log[:at] + log[at + 1:]).kinds()
    assert "duplicate" in History(events, log + [log[at]]).kinds()
    of_a = [number for number, event in enumerate(log) if event.key == "a"]
    first, second = sorted(rng.sample(of_a, 2))
    log[first], log[second] = log[second], log[first]
    assert "order" in History(events, log).kinds()
