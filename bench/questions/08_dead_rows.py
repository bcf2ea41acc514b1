"""Is a drain as fast under an old snapshot that keeps every dead row, and between dead rows at both ends?"""

import statistics

from bench import watched
from bench.answer import Answer, BenchFailed
from bench.harness import Bench, read_sql

TENTHS = 10
SLICES = 5  # of each tenth: the machine is faster at one time than at another
CLOSED = 10  # keys that lie below all that passes under the snapshot
QUEUE = "bench"  # as in bench/harness.py


class Stream:
    """Events that pass through a database and one relay, a slice at a time. Those of the first tenth warm up."""

    def __init__(self, bench, events, keys, closed=0):
        self.bench, self.events, self.keys, self.closed = bench, events, keys, closed
        bench.db.psql(f"\\set count {closed}\n\\set queue {QUEUE}\n" + read_sql("close_keys.sql"))
        self.relay = watched.Claims(bench)
        self.passed, self.rates = 0, []  # the rates of all parts but the first, in events/s
        self.event_us, self.claims_us = [], []  # what their claims took, an event; and each of them

    def pass_slice(self):
        self.bench.append(self.events, self.keys, first=self.passed)
        seconds, claims = self.relay.drain(self.events)
        self.passed += self.events
        if self.passed <= self.events * SLICES:
            return
        self.rates.append(self.events / seconds)
        self.event_us.append(sum(took_us for _, took_us in claims) / sum(events for events, _ in claims))
        self.claims_us += [took_us for _, took_us in claims]

    def tenth_us(self, number):
        """What claims took in this tenth, an event: the median of its slices."""
        return statistics.median(self.event_us[number * SLICES:][:SLICES])

    def p99_ms(self):
        return statistics.quantiles(self.claims_us, n=100, method="inclusive")[-1] / 1000

    def stop(self):
        delivered, failed = self.relay.stop()
        left = self.bench.db.value("select count(*) from outbox.events")
        if failed:
            self.bench.say(f"old snapshot: {failed} transactions of the relay in {self.bench.db.name} took too long and failed")
        if delivered != self.passed or left != self.closed:
            raise BenchFailed(f"{delivered:,} of {self.passed:,} events were delivered, {left:,} are left")


def under_a_snapshot(bench, events, keys):
    """A tenth of the events at a time goes through one relay, in turn under an old snapshot, past keys that are closed, and, in a
    database of its own, where vacuum may clean up. The snapshot of one database holds nothing back in another."""
    free = Bench(bench.postgres, bench.run, name=f"{bench.db.name}_free")
    holder = bench.db.connect(autocommit=False)
    holder.set_session(isolation_level="REPEATABLE READ")
    holder.cursor().execute("select 1")
    slice_of = events // TENTHS // SLICES
    held, usual = Stream(bench, slice_of, keys, CLOSED), Stream(free, slice_of, keys)
    try:
        for number in range(TENTHS + 1):
            for _ in range(SLICES):
                usual.pass_slice()
                held.pass_slice()
            free.db.query("vacuum outbox.events")
            if number:
                bench.say(f"old snapshot, tenth {number}: without it claims of {usual.tenth_us(number - 1):.2f} us an event, with it "
                          f"{held.tenth_us(number - 1):.2f} us")
        held.stop()
        usual.stop()
        expect_dead(bench, held.passed)
    finally:
        held.relay.relay.close()
        usual.relay.relay.close()
        holder.close()
        free.db.drop()
    first, last = [held.tenth_us(number) / usual.tenth_us(number) for number in (0, TENTHS - 1)]
    return [Answer(f"{events:,} events pass under an old snapshot", "events/s", held.rates, usual.rates, must=0.80, aim=0.95,
                   events=events, note=f"{CLOSED} closed keys lie below them; floor: the same without snapshot and these; {len(held.rates)} slices, after some that warm up"),
            Answer("time of a claim, last tenth / first tenth", "", [last / first], must=1.3, aim=1.1, more=False,
                   events=events, note=f"{held.tenth_us(TENTHS - 1):.2f} us and {held.tenth_us(0):.2f} us an event, medians of {SLICES} slices; beside the same without "
                                       f"the snapshot, {usual.tenth_us(TENTHS - 1):.2f} us and {usual.tenth_us(0):.2f} us, {last:.2f} and {first:.2f}; p99 of a "
                                       f"claim {held.p99_ms():.1f} ms, without it {usual.p99_ms():.1f} ms")]


def expect_dead(bench, rows):
    """The dead rows are still there, or nothing was measured."""
    connection = bench.db.connect()
    connection.cursor().execute("vacuum (verbose, truncate false) outbox.events")
    notices = "".join(connection.notices)
    connection.close()
    if f"{rows} are dead but not yet removable" not in notices:
        raise BenchFailed(f"the old snapshot did not keep {rows:,} dead rows:\n{notices}")


def between_dead_ends(bench, dead, events, keys):
    """Each pair has a relay of its own and rows in a part of the gap that had none before."""
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
    return Answer(f"{dead:,} dead rows at both ends, no vacuum", "events/s", rates, floors, must=0.80, aim=0.95, events=events, overhead_s=overhead_s,
                  note="floor: the relay in question 1; the first run is the first to find them dead")


def ask(bench):
    passing, keys = bench.run.size((5_000_000, 50_000), (500_000, 5_000))
    answers = under_a_snapshot(bench, passing, keys)
    dead, events, keys = bench.run.size((10_000_000, 500_000, 50_000), (500_000, 200_000, 20_000))
    return [*answers, between_dead_ends(bench, dead, events, keys)]
