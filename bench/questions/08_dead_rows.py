"""Is a drain as fast under an old snapshot that keeps every dead row, and between dead rows at both ends?"""

import statistics

from bench import watched
from bench.answer import Answer, BenchFailed
from bench.harness import Bench, read_sql
from tests.support.servers import wait_until

TENTHS = 10  # each of some slices: the machine is faster at one time than at another
CLOSED = 10  # keys that lie below all that passes under the snapshot
PUT_LOCKED = "insert into outbox.events (aggregateid, type, payload) values ('locked row', 't', '{}'), ('locked key', 't', '{}')"
LOCK = ("select from outbox.events where aggregateid = 'locked row' for update",
        "select pg_advisory_xact_lock(outbox.lock_class_of('outbox.events'), outbox.lock_hash('text', 'locked key', 0))")
QUEUE = "bench"  # as in bench/harness.py


class Stream:
    """Events that pass through a database and one relay, a slice at a time. Those of the first tenth warm up. With `stays`, below
    all of them lie ten closed keys, a row that another session has locked and one whose key it has."""

    def __init__(self, bench, slices, events, keys, stays=False):
        self.bench, self.slices, self.events, self.keys, self.closed = bench, slices, events, keys, CLOSED if stays else 0
        bench.db.psql(f"\\set count {self.closed}\n\\set queue {QUEUE}\n" + read_sql("close_keys.sql"))
        self.locker = self.lock_some() if stays else None
        self.relay = watched.Claims(bench)
        self.locked = len(LOCK) if stays else 0
        self.passed, self.rates = 0, []  # the rates of all parts but the first, in events/s
        self.event_us, self.claims_us = [], []  # what their claims took, an event; and each of them

    def pass_slice(self):
        self.bench.append(self.events, self.keys, first=self.passed)
        seconds, claims = self.relay.drain(self.events)
        self.passed += self.events
        if self.passed <= self.events * self.slices:
            return
        self.rates.append(self.events / seconds)
        self.event_us.append(sum(took_us for _, took_us in claims) / sum(events for events, _ in claims))
        self.claims_us += [took_us for _, took_us in claims]

    def tenth_us(self, number):
        """What claims took in this tenth, an event: the median of its slices."""
        return statistics.median(self.tenth(self.event_us, number))

    def tenth(self, values, number):
        return values[number * self.slices:][:self.slices]

    def p99_ms(self):
        return statistics.quantiles(self.claims_us, n=100, method="inclusive")[-1] / 1000

    def lock_some(self):
        self.bench.db.query(PUT_LOCKED)
        locker = self.bench.db.connect(autocommit=False)
        for lock in LOCK:
            locker.cursor().execute(lock)
        return locker

    def unlock(self):
        if self.locker:
            self.relay.relay.resume()
            self.locker.close()
            wait_until(lambda: self.left() == self.closed, what="what was locked to be delivered")

    def left(self):
        return self.bench.db.value("select count(*) from outbox.events")

    def stop(self):
        self.unlock()
        delivered, failed = self.relay.stop()
        left = self.left()
        if delivered != self.passed + self.locked or left != self.closed:
            raise BenchFailed(f"{delivered:,} of {self.passed + self.locked:,} events were delivered, {left:,} are left")
        return failed


def under_a_snapshot(bench, events, slices, keys):
    """A tenth of the events at a time goes through one relay, in turn under an old snapshot, past what stays, and, in a database of
    its own, where vacuum may clean up. The snapshot of one database holds nothing back in another."""
    free = Bench(bench.postgres, bench.run, name=f"{bench.db.name}_free")
    holder = bench.db.connect(autocommit=False)
    holder.set_session(isolation_level="REPEATABLE READ")
    holder.cursor().execute("select 1")
    slice_of = events // TENTHS // slices
    held, usual = Stream(bench, slices, slice_of, keys, stays=True), Stream(free, slices, slice_of, keys)
    try:
        for number in range(TENTHS + 1):
            for _ in range(slices):
                usual.pass_slice()
                held.pass_slice()
            free.db.query("vacuum outbox.events")
            if number:
                bench.say(f"old snapshot, tenth {number}: without it claims of {usual.tenth_us(number - 1):.2f} us an event, with it "
                          f"{held.tenth_us(number - 1):.2f} us")
        failed = held.stop(), usual.stop()
        expect_dead(bench, held.passed + held.locked)
    finally:
        held.relay.relay.close()
        usual.relay.relay.close()
        held.locker.close()
        holder.close()
        free.db.drop()
    ratios = [rate / floor for rate, floor in zip(held.rates, usual.rates)]
    tenths = " ".join(f"{statistics.median(held.tenth(ratios, number)):.2f}" for number in range(TENTHS))
    first, last = [(held.tenth_us(number), usual.tenth_us(number)) for number in (0, TENTHS - 1)]
    return [Answer(f"{events:,} events pass under an old snapshot", "events/s", held.rates, usual.rates, must=0.80, aim=0.95,
                   events=events, note=f"{CLOSED} closed keys, a row and a key locked by another session lie below them; floor: the same without snapshot and these; "
                        f"{len(held.rates)} slices, after some that warm up; tenth by tenth {tenths}; "
                        f"{failed[0]} of the relay's transactions failed, as they waited for too long (floor: {failed[1]})"),
            Answer("time of a claim, last tenth / first tenth", "", [last[0] / first[0]], must=1.3, aim=1.1, more=False,
                   events=events, note=f"{last[0]:.2f} us and {first[0]:.2f} us an event, medians of {slices} slices; at the same times without the snapshot "
                                       f"{last[1]:.2f} us and {first[1]:.2f} us, beside which it is {last[0] / first[0] / (last[1] / first[1]):.2f}; p99 of "
                                       f"a claim {held.p99_ms():.1f} ms, without it {usual.p99_ms():.1f} ms")]


def expect_dead(bench, rows):
    """The dead rows are still there, or nothing was measured."""
    connection = bench.db.connect()
    connection.cursor().execute("vacuum (verbose, truncate false) outbox.events")
    notices = "".join(connection.notices)
    connection.close()
    if f"{rows} are dead but not yet removable" not in notices:
        raise BenchFailed(f"the old snapshot did not keep {rows:,} dead rows:\n{notices}")


def between_dead_ends(bench, dead, events, keys):
    """Each pair has a relay of its own and rows in a part of the gap that had none before. What finds dead rows for the first time marks
    them in the index, so the first run is shown by itself, too."""
    overhead_s = bench.relay_overhead_s()
    ends = Bench(bench.postgres, bench.run, name=f"{bench.db.name}_ends")
    try:
        bench.say(f"making {dead:,} dead rows")
        ends.db.psql(f"\\set dead {dead // 2}\n\\set gap {events * bench.run.pairs}\n" + read_sql("dead_ends.sql"))
        floors, rates = [], []
        for number in range(bench.run.pairs):
            bench.refill(events, keys)
            seconds, delivered, _ = watched.run(bench)
            bench.expect_drained("the relay", delivered, events)
            floors.append(events / (seconds - overhead_s))
            first_id = dead // 2 + number * events + 1
            ends.db.psql(f"\\set first_id {first_id}\n\\set count {events}\n\\set keys {keys}\n"
                         + read_sql("append_between.sql") + "checkpoint;")
            seconds, delivered, _ = watched.run(ends)
            ends.expect_drained("the relay between dead rows", delivered, events)
            rates.append(events / (seconds - overhead_s))
            bench.expect_long("dead rows at both ends", events / max(floors[-1], rates[-1]), overhead_s)
            bench.say(f"dead rows at both ends, pair {number + 1} of {bench.run.pairs}: without {floors[-1]:,.0f}/s, "
                      f"with {rates[-1]:,.0f}/s")
    finally:
        ends.db.drop()
    name = f"{dead:,} dead rows at both ends, no vacuum"
    return [Answer(name, "events/s", rates, floors, must=0.80, aim=0.95, events=events, overhead_s=overhead_s,
                   note="floor: the relay in question 1; the first run is the first to find them dead"),
            Answer(f"{name}: the first run", "events/s", rates[:1], floors[:1], events=events, overhead_s=overhead_s)]


def ask(bench):
    answers = under_a_snapshot(bench, *bench.run.size((5_000_000, 5, 50_000), (300_000, 3, 5_000)))
    dead, events, keys = bench.run.size((10_000_000, 500_000, 50_000), (300_000, 100_000, 10_000))
    return answers + between_dead_ends(bench, dead, events, keys)
