"""Runs of relays that are hurt, one after the other on one database, and how each is judged: it may go on as if nothing
had happened, or end with an exit code of docs/operations.md and one line that says why; then another relay, unhurt,
finishes its work. It never crashes or hangs, and the history is right.

    class MyCourse(Course):
        def hurt(self, config, how): ...    # the relay that is to be hurt, not started
        def failed(self, relay): ...        # what was done to it: Failed, or a like of it

    outcome = MyCourse(db, new_target).run(how)
"""

from collections import namedtuple

from tests.support.history import Fault
from tests.support.relay import Relay
from tests.support.shop import Shop

DOCUMENTED = {64, 69, 70, 75, 77, 78}
NOT_AGAIN = {64, 77, 78}  # after these no supervisor starts it again
DEADLINE_S = 100

Failed = namedtuple("Failed", "at what")  # at: by time.monotonic()
Outcome = namedtuple("Outcome", "failed code reason")


class Course:
    """One database, and one run after the other on it, each with events of its own. new_target: a function that gives a
    run, by number, the target that it delivers to."""

    events, orders, keys, per_key = 32, 4, 2, 2  # several times as many events as may come again
    ordered = True
    queue = {}  # settings of the queue
    program = None

    def __init__(self, db, new_target):
        self.shop = Shop(db, orders=self.orders)
        self.new_target = new_target
        self.runs = 0

    def run(self, how):
        """The Outcome; or an AssertionError."""
        self.runs += 1
        first = self.begin()
        target = self.new_target(self.runs)
        one = self.hurt(self.config(target, "first"), how)
        try:
            code = one.start().wait(DEADLINE_S)
            outcome = Outcome(self.failed(one), code, reason_of(one, code))
        finally:
            one.kill()
            one.close()
        if code != 0:
            self.finish(self.config(target, "second"))
        self.check([receipt for receipt in target.receipts() if receipt.id >= first], outcome)
        return outcome

    def begin(self):
        """Makes the events of a run, and returns the first id."""
        self.shop.journal.clear()
        return self.shop.add(self.events, self.orders)[0].id

    def check(self, receipts, outcome):
        assert self.shop.left() == 0, "it ended with work left and said that there was none"
        self.shop.check(receipts, [Fault(one.what, self.uncertain(one), "first", at=one.at) for one in outcome.failed],
                        ordered=self.ordered)

    def uncertain(self, failed):
        """How many events it may leave without a known outcome: those on their way. A claim may have twice `keys` keys, while
        they have an event or two each (claim_keys_at_most()), and where that is all there are, so may all claims together."""
        return 2 * self.keys * self.per_key

    def config(self, target, relay):
        return self.shop.config(target.sink(relay=relay), connections=1, keys_per_claim=self.keys,
                                max_events_per_key=self.per_key, top="statement_timeout: 2s",
                                retry="{ base: 10ms, max: 50ms, attempts: 1000 }", **{**target.queue, **self.queue})

    def finish(self, config):
        with Relay(config, until_empty=True, program=self.program).start() as successor:
            assert successor.wait(DEADLINE_S) == 0, f"the next relay ended with {successor.exit_code}: {successor.log[-5:]}"

    def start_anew(self):
        """After a run that was wrong."""
        self.shop.db.query("truncate public.events, outbox.parked, outbox.dead")


def reason_of(relay, code):
    """The line in which it says why it ended."""
    if code == 0:
        return None
    assert code in DOCUMENTED, f"exit code {code}: {relay.log[-5:]}"
    reasons = [line for line in relay.log if line.startswith("pgcourier: ")]
    assert len(reasons) == 1 and len(reasons[0]) > 20, f"exit code {code} and no clear line: {relay.log[-5:]}"
    return reasons[0]
