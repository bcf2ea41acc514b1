"""The history check finds out broken relays. Each class below is the model relay with one thing done wrong, in a way that a
relay has been seen to do it or could; the check must name the breach in every run."""

import pytest

from tests.support.model_relay import ATTEMPTS, PER_CLAIM, Model, Relay, Row

RUNS = range(3)


class TheArticlesQuery(Relay):
    """One statement: what it sees is older than its lock, and it takes the newest event."""

    def read(self, name):
        return sorted((row for row in self.snapshot if row.lane == name), key=lambda row: -row.id)[:1]


class SnapshotBeforeTheLock(Relay):
    def read(self, name):
        return sorted((row for row in self.snapshot if row.lane == name), key=lambda row: row.id)[:PER_CLAIM]


class NewestFirst(Relay):
    def read(self, name):
        return super().read(name)[::-1]


class UnlocksBeforeTheSettleIsCommitted(Relay):
    def finish(self, name, done, failure):
        self.unlock(name)
        yield
        yield
        yield from super().finish(name, done, failure)


class DeletesBeforeTheAck(Relay):
    """As if the broker's queue were the broker."""

    def read(self, name):
        rows = super().read(name)
        for row in rows:
            self.delete(row)
            self.archive(row)
        return rows

    def settle(self, name, done, failure):
        pass


class GoesOnPastAFailedEvent(Relay):
    def hear(self, row, heard, done, failure):
        done, failed, _ = super().hear(row, heard, done, failure)
        return done, failure or failed, True


class SwallowsTheDeliveryReport(Relay):
    def hear(self, row, heard, done, failure):
        return [*done, row], failure, True


class TakesSilenceForAnAck(Relay):
    def hear(self, row, heard, done, failure):
        return super().hear(row, heard or "ack", done, failure)


class MeasuresPayloadsWithStrlen(Relay):
    def send(self, row):
        return (yield from self.model.sink(self, row.id, row.key, row.payload.split(b"\0")[0], self.attempt(row)))


class CutsLongPayloads(Relay):
    def send(self, row):
        return (yield from self.model.sink(self, row.id, row.key, row.payload[:64], self.attempt(row)))


class SendsThePayloadOfAnotherEvent(Relay):
    """Two rows of one claim, one buffer."""

    def send(self, row):
        payload = self.claim[0].payload
        return (yield from self.model.sink(self, row.id, row.key, payload, self.attempt(row)))


class SendsTheKeyOfTheLastEvent(Relay):
    last_key = None

    def send(self, row):
        key, self.last_key = self.last_key or row.key, row.key
        return (yield from self.model.sink(self, row.id, key, row.payload, self.attempt(row)))


class SkipsTheRetry(Relay):
    """The first failure is the last."""

    def fail(self, name, row, heard):
        self.give_up(name, row, self.attempt(row))


class DropsWhatFailed(Relay):
    def give_up(self, name, row, attempts):
        self.model.parked.pop(name, None)
        self.delete(row)


class NeverComesBackToAFailedKey(Relay):
    def fail(self, name, row, heard):
        super().fail(name, row, heard)
        if name in self.model.parked:
            self.model.parked[name].until = 10 ** 9


class CountsNoAttempts(Relay):
    def attempt(self, row):
        return 1

    def fail(self, name, row, heard):
        self.model.parked.pop(name, None)
        if heard == "reject" or self.rng.random() < 0.3:
            self.give_up(name, row, ATTEMPTS)


class CountsEveryAttemptTwice(Relay):
    def attempt(self, row):
        wait = self.model.parked.get(row.lane)
        return wait.attempts + 2 if wait and wait.head.id == row.id else 1


class DropsWhatWasInFlightAtARestart(Relay):
    """A new relay finds the dead one's claim in its notes and takes it for done."""

    notes = {}

    def read(self, name):
        for row in self.notes.pop(name, ()):
            self.delete(row)
            self.archive(row)
        self.notes[name] = super().read(name)
        return self.notes[name]

    def finish(self, name, done, failure):
        self.notes.pop(name, None)
        yield from super().finish(name, done, failure)


class ForgetsTheLastAckOfAClaim(Relay):
    """Delivers it again, though nothing had happened."""

    def settle(self, name, done, failure):
        super().settle(name, done[:-1] if len(done) > 1 else done, failure)


class RollsBackWhatWasAckedBeforeAFailure(Relay):
    def settle(self, name, done, failure):
        super().settle(name, [] if failure else done, failure)


class LocksNothing(Relay):
    def lock(self, name):
        return self.connected and self.is_due(name)


class LocksEachEventAndNotItsKey(Relay):
    """SKIP LOCKED on rows: the next relay takes the next rows of the same key."""

    def lock(self, name):
        return self.connected and self.is_due(name)

    def read(self, name):
        held = {row.id for relay, _ in self.model.relays.values() for row in relay.claim}
        return [row for row in sorted(self.visible(), key=lambda row: row.id) if row.lane == name and row.id not in held][:1]


class DoesNotNoticeThatItsConnectionIsGone(Relay):
    def reconnect(self):
        pass

    def lock(self, name):
        return self.is_due(name) if not self.connected else super().lock(name)

    def has_lost_its_claim(self):
        return False


class SettlesEveryTenthEventOnly(Relay):
    """Faster, and a kill repeats claims that were done long ago."""

    def run(self):
        self.pending = []
        return super().run()

    def choose(self):
        mine = {row.lane for row in self.pending}
        names = sorted({row.lane for row in self.snapshot if self.is_due(row.lane) and row.lane not in mine}, key=str)
        return self.rng.choice(names) if names else self.flush()

    def settle(self, name, done, failure):
        self.pending += done
        if failure:
            self.flush()
            super().settle(name, [], failure)
        elif len(self.pending) >= 10:
            self.flush()

    def unlock(self, name):
        if name not in {row.lane for row in self.pending}:
            super().unlock(name)

    def flush(self):
        rows, self.pending = self.pending, []
        for row in rows:
            super().settle(row.lane, [row], None)
            super().unlock(row.lane)


class DeadLettersWithoutCause(Relay):
    """A slow neighbour makes it give up an event that nobody has refused."""

    def settle(self, name, done, failure):
        super().settle(name, done, failure)
        rest = [row for row in self.claim if row not in done and row.id in self.model.table and row.id != failure[0].id] if failure else []
        if rest and failure[1] == "refuse":
            self.give_up(name, rest[0], 1)


class LeavesTheDeadInTheTable(Relay):
    def give_up(self, name, row, attempts):
        super().give_up(name, row, attempts)
        self.model.table[row.id] = row


class ReadsWhatIsNotCommitted(Relay):
    def visible(self):
        return self.model.table.values()


class ReordersOnRetry(Relay):
    """A failed event goes behind the next one of its key."""

    def is_due(self, name):
        return True

    def read(self, name):
        rows, wait = super().read(name), self.model.parked.get(name)
        waits = wait and wait.until > self.model.now and rows and rows[0].id == wait.head.id
        return rows[1:] + rows[:1] if waits else rows


class ArchivesWithoutDelivering(Relay):
    """Cleans up what waits for a retry."""

    def settle(self, name, done, failure):
        rest = [failure[0]] if failure and failure[1] == "refuse" and self.attempt(failure[0]) > 1 else []
        super().settle(name, done + rest, None if rest else failure)


class ArchivesNothing(Relay):
    def archive(self, row):
        pass


class DeletesItsNeighbours(Relay):
    """By a range of ids."""

    def settle(self, name, done, failure):
        super().settle(name, done, failure)
        for event_id in range(done[0].id, done[-1].id) if done else ():
            if event_id in self.model.table:
                self.delete(self.model.table[event_id])


class IgnoresEventsWithoutAKey(Relay):
    def choose(self):
        self.snapshot = [row for row in self.snapshot if row.key is not None]
        return super().choose()


class TakesItsPositionForAProof(Relay):
    """Never looks again below an id that it has delivered, but a smaller one was committed later."""

    position = 0

    def visible(self):
        return (row for row in super().visible() if row.id > self.position)

    def settle(self, name, done, failure):
        super().settle(name, done, failure)
        if not failure:
            type(self).position = max([self.position, *(row.id for row in done)])


class SendsAnEventOfItsOwn(Relay):
    """A heartbeat in the events' topic."""

    def send(self, row):
        if self.rng.random() < 0.1:
            yield from self.model.sink(self, row.id + 10000, row.key, b"alive", 1)
        return (yield from super().send(row))


class PutsBackWhatWasArchived(Relay):
    """The insert into the archive and the delete are two transactions."""

    def settle(self, name, done, failure):
        super().settle(name, done, failure)
        for row in done:
            if self.rng.random() < 0.05:
                self.model.table[row.id] = Row(row.id, row.key, row.payload, True)


LONG = {"transactions": 240}  # what takes two to meet does not happen in every short run

# The mutant, what the check must call it, and what makes it happen.
MUTANTS = [
    (TheArticlesQuery, {"order", "duplicate"}, {}),
    (SnapshotBeforeTheLock, {"duplicate"}, {}),
    (NewestFirst, {"order"}, {}),
    (UnlocksBeforeTheSettleIsCommitted, {"duplicate"}, {}),
    (DeletesBeforeTheAck, {"lost"}, {}),
    (GoesOnPastAFailedEvent, {"order"}, {}),
    (SwallowsTheDeliveryReport, {"lost"}, {}),
    (TakesSilenceForAnAck, {"lost"}, {}),
    (MeasuresPayloadsWithStrlen, {"bytes"}, {}),
    (CutsLongPayloads, {"bytes"}, {}),
    (SendsThePayloadOfAnotherEvent, {"bytes"}, {}),
    (SendsTheKeyOfTheLastEvent, {"key"}, {}),
    (SkipsTheRetry, {"cause"}, {}),
    (SkipsTheRetry, {"cause"}, {"dead_letters": False}),
    (DropsWhatFailed, {"lost"}, {}),
    (NeverComesBackToAFailedKey, {"stuck"}, {}),
    (CountsNoAttempts, {"attempt"}, {}),
    (CountsEveryAttemptTwice, {"attempt"}, {}),
    (DropsWhatWasInFlightAtARestart, {"lost"}, {"faults": True, **LONG}),
    (ForgetsTheLastAckOfAClaim, {"duplicate"}, {}),
    (RollsBackWhatWasAckedBeforeAFailure, {"duplicate"}, {}),
    (LocksNothing, {"duplicate", "exclusion"}, {}),
    (LocksEachEventAndNotItsKey, {"exclusion"}, {}),
    (DoesNotNoticeThatItsConnectionIsGone, {"bound"}, {"faults": True, **LONG}),
    (SettlesEveryTenthEventOnly, {"bound"}, {"faults": True, **LONG}),
    (DeadLettersWithoutCause, {"cause"}, {}),
    (LeavesTheDeadInTheTable, {"account"}, {}),
    (ReadsWhatIsNotCommitted, {"phantom"}, LONG),
    (ReordersOnRetry, {"order"}, LONG),
    (ArchivesWithoutDelivering, {"lost"}, LONG),
    (ArchivesNothing, {"account"}, {}),
    (DeletesItsNeighbours, {"lost"}, {}),
    (IgnoresEventsWithoutAKey, {"stuck"}, {}),
    (TakesItsPositionForAProof, {"stuck"}, {}),
    (SendsAnEventOfItsOwn, {"phantom"}, {}),
    (PutsBackWhatWasArchived, {"account", "duplicate"}, LONG),
]


@pytest.mark.parametrize("mutant, kinds, options", MUTANTS, ids=lambda value: getattr(value, "__name__", None))
def test_a_broken_relay_is_found_out(mutant, kinds, options):
    for seed in RUNS:
        fresh = type(mutant.__name__, (mutant,), {"notes": {}, "position": 0})  # what it remembers, for one run
        verdict = Model(seed, fresh, **options).verdict()
        assert kinds <= verdict.kinds(), f"seed {seed}: found {verdict.kinds()}\n{verdict.report()}"
        assert verdict.report().startswith(f"seed {seed}\n")


@pytest.mark.parametrize("options", [
    {}, {"faults": True}, {"dead_letters": False}, {"faults": True, "dead_letters": False}, {"faults": True, "failing_sink": False}],
    ids=str)
def test_the_relay_they_are_made_from_is_right(options):
    """Whatever its sink answers, and whatever is killed: otherwise the mutants would prove nothing."""
    duplicates = 0
    for seed in range(30):
        duplicates += Model(seed, **options).verdict().require().duplicates
    assert duplicates > 0 or not (options.get("faults") or options.get("failing_sink", True))


def test_a_seed_is_one_run():
    one, other = (Model(7, faults=True).verdict() for _ in range(2))
    assert (one.events, one.receipts, one.faults) == (other.events, other.receipts, other.faults)
