"""Relays among faults of every kind, one after the other and over each other, by a schedule that its seed decides. However
it goes, the history is right: nothing is lost, order holds, nothing comes twice that no fault explains, and no key is stuck.

PGCOURIER_CHAOS_SEED and PGCOURIER_CHAOS_SECONDS repeat a schedule, or make another; PGCOURIER_SOAK_SECONDS is the length
of the soak."""

import contextlib
import os
import random
import types
from collections import Counter

import psycopg2
import pytest

from tests.support.chaos import faults
from tests.support.chaos import schedule as chaos_schedule
from tests.support.chaos.faults import kind_of
from tests.support.chaos.outcome import Outcome
from tests.support.chaos.run import Chaos, Plan
from tests.support.history import check
from tests.support.relay import binary
from tests.support.shop import HOT_ORDER

SEED = 11171  # its first ten faults, those of the default run, are of all families
SINKS = ["file", "redis", "http", "kafka"]
MEGABYTE = 1 << 20


def chosen(name, otherwise):
    return int(os.environ.get(name, otherwise))


def run(plan, folder):
    print(f"PGCOURIER_CHAOS_SEED={plan.seed} PGCOURIER_CHAOS_SECONDS={plan.seconds:g}")
    with Chaos(plan, folder) as chaos:
        outcome = chaos.run()
        outcome.require()
    print(outcome.summary())
    return outcome


# ---- the schedule ----

@pytest.mark.parametrize("sink", SINKS)
def test_the_seed_decides_the_schedule(sink):
    steps = chaos_schedule.schedule(7, 100, sink)
    assert steps == chaos_schedule.schedule(7, 100, sink)
    assert chaos_schedule.text(steps) != chaos_schedule.text(chaos_schedule.schedule(8, 100, sink))
    assert [int(step.at_s // 2) for step in steps] == list(range(50))


@pytest.mark.parametrize("sink", SINKS)
def test_a_long_schedule_has_every_kind_of_fault_and_each_can_be_carried_out(sink):
    steps = chaos_schedule.schedule(7, 100, sink)
    assert {step.kind for step in steps} == {kind.name for kind in chaos_schedule.kinds(sink)}
    assert all(kind_of(step) for step in steps)


def test_relays_that_are_spared_are_neither_killed_nor_restarted():
    steps = chaos_schedule.schedule(7, 1000, "http", spared=(0, 2))
    ended = [step.who for step in steps if step.kind in ("relay.kill", "relay.restart")]
    assert set(ended) == {1, 3}


# ---- what is not done ----

class Stage:
    """As much of one as play() needs."""

    def __init__(self):
        self.missed = []

    def hold(self, *_names):
        return contextlib.nullcontext()

    def miss(self, step, error):
        self.missed.append((step, str(error)))

    def over(self, _step):
        pass


@pytest.mark.parametrize("error, missed", [
    (psycopg2.OperationalError("server closed the connection"), True), (psycopg2.errors.LockNotAvailable("lock timeout"), True),
    (psycopg2.InterfaceError("connection already closed"), True), (ProcessLookupError("no such process"), True),
    (psycopg2.ProgrammingError("syntax error"), False), (psycopg2.DataError("no such value"), False)])
def test_only_a_fault_that_another_was_quicker_than_is_missed(monkeypatch, error, missed):
    def kind(_stage, _step):
        raise error
        yield

    monkeypatch.setitem(faults.KINDS, "table.broken", kind)
    stage, step = Stage(), chaos_schedule.Step(0, "table.broken", None, 0, 0, 0)
    with contextlib.nullcontext() if missed else pytest.raises(type(error)):
        faults.play(stage, step)
    assert bool(stage.missed) == missed


@pytest.mark.parametrize("missed, told", [(0, False), (2, False), (3, True)])
def test_a_run_that_has_missed_more_than_a_few_faults_proves_nothing(missed, told):
    steps = chaos_schedule.schedule(7, 20, "http")
    outcome = Outcome(Plan(7, 20, "http"), steps, check([], []), None, [], [(step, "gone") for step in steps[:missed]],
                      types.SimpleNamespace(stalls=[]), [])
    if told:
        with pytest.raises(AssertionError, match="3 of 10 faults were not done, and 20% may be"):
            outcome.require()
    else:
        outcome.require()


# ---- the run ----

@pytest.fixture(scope="module")
def short_run(tmp_path_factory):
    plan = Plan(chosen("PGCOURIER_CHAOS_SEED", SEED), chosen("PGCOURIER_CHAOS_SECONDS", 20), "http")
    return run(plan, tmp_path_factory.mktemp("chaos"))


def test_chaos_breaks_no_promise(short_run):
    assert short_run.verdict.counts["delivered"] > 0
    assert any(fault.in_flight for fault in short_run.verdict.faults)


def only_receipts(receipts):
    """The numbers of the receipts of the busiest order's events that came once, in order."""
    times = Counter(receipt.id for receipt in receipts)
    return [number for number, receipt in enumerate(receipts)
            if receipt.key == str(HOT_ORDER) and receipt.answer == "ack" and times[receipt.id] == 1]


def swap_two_of_a_key(receipts):
    first, second = only_receipts(receipts)[-2:]
    changed = list(receipts)
    changed[first] = receipts[second]._replace(at=receipts[first].at, end=receipts[first].end)
    changed[second] = receipts[first]._replace(at=receipts[second].at, end=receipts[second].end)
    return changed


def drop_one(receipts):
    number = only_receipts(receipts)[-1]
    return receipts[:number] + receipts[number + 1:]


def double_one(receipts):
    """It comes long after the last fault, and again."""
    number, later = only_receipts(receipts)[-1], receipts[-1].at + 60
    return [*drop_one(receipts), *(receipts[number]._replace(at=at, end=at) for at in (later, later + 1))]


def change_bytes(receipts):
    number = only_receipts(receipts)[-1]
    return receipts[:number] + [receipts[number]._replace(hash="0" * 16)] + receipts[number + 1:]


@pytest.mark.parametrize("tamper, kind", [(drop_one, "lost"), (double_one, "duplicate"), (swap_two_of_a_key, "order"),
                                          (change_bytes, "bytes")])
def test_the_verdict_falls_when_one_receipt_is_wrong(short_run, tamper, kind):
    """As a relay would have left it that had swallowed an event, sent one twice without need, or overtaken one."""
    verdict = short_run.verdict
    fallen = check(verdict.events.values(), tamper(verdict.receipts), verdict.faults, short_run.final, attempts=1000)
    assert kind in fallen.kinds()


@pytest.mark.deep
@pytest.mark.parametrize("fresh", [False, True], ids=["fixed", "fresh"])
@pytest.mark.parametrize("sink", SINKS)
def test_long_chaos_breaks_no_promise(tmp_path, sink, fresh):
    """The one with sanitizers, the other as it is shipped."""
    seed = random.SystemRandom().randrange(1_000_000) if fresh else SEED
    run(Plan(chosen("PGCOURIER_CHAOS_SEED", seed), chosen("PGCOURIER_CHAOS_SECONDS", 100), sink,
             program=binary(["release"]) if fresh else None), tmp_path)


@pytest.mark.deep
def test_a_soak_breaks_no_promise_in_flat_memory(tmp_path):
    """The build that is measured has no sanitizer, whose memory grows. One relay goes on to the end."""
    plan = Plan(chosen("PGCOURIER_CHAOS_SEED", SEED), chosen("PGCOURIER_SOAK_SECONDS", 300), "http", every_s=10.0, spared=(0,),
                program=binary(["release"]))
    outcome = run(plan, tmp_path)
    assert outcome.memory.growth() < 2 * MEGABYTE
