"""Is a drain as fast under an old snapshot that keeps every dead row, and between dead rows at both ends?"""

import statistics

from bench import watched
from bench.answer import Answer, BenchFailed
from bench.harness import Bench, read_sql

PARTS = 10


def part_of_stream(bench, claims, number, events, keys):
    """(events/s, median time of a claim in microseconds) for one tenth of the events that pass through."""
    bench.append(events, keys, first=number * events)
    seconds, took_us = claims.drain(events)
    return events / seconds, statistics.median(took_us)


def under_a_snapshot(bench, events, keys):
    """A tenth of the events at a time goes through one relay, in turn under an old snapshot and, in a database of its own,
    where vacuum may clean up. The snapshot of one database holds nothing back in another."""
    free = Bench(bench.postgres, bench.run, name=f"{bench.db.name}_free")
    holder = bench.db.connect(autocommit=False)
    holder.set_session(isolation_level="REPEATABLE READ")
    holder.cursor().execute("select 1")
    held, usual = watched.Claims(bench), watched.Claims(free)
    floors, rates, claim_us = [], [], []
    try:
        for number in range(PARTS):
            floors.append(part_of_stream(free, usual, number, events // PARTS, keys)[0])
            free.db.query("vacuum outbox.events")
            rate, took_us = part_of_stream(bench, held, number, events // PARTS, keys)
            rates.append(rate)
            claim_us.append(took_us)
            bench.say(f"old snapshot, part {number + 1} of {PARTS}: without it {floors[-1]:,.0f}/s, with it {rate:,.0f}/s, "
                      f"{took_us / 1000:.1f} ms a claim")
        for claims, where in ((held, bench), (usual, free)):
            delivered, failed = claims.stop()
            left = where.db.value("select count(*) from outbox.events")
            if failed:
                bench.say(f"old snapshot: {failed} transactions of the relay in {where.db.name} took too long and failed")
            if delivered != events // PARTS * PARTS or left:
                raise BenchFailed(f"{delivered:,} of {events:,} events were delivered, {left:,} are left")
        expect_dead(bench, events // PARTS * PARTS)
    finally:
        held.relay.close()
        usual.relay.close()
        holder.close()
        free.db.drop()
    return [Answer(f"{events:,} events pass under an old snapshot", "events/s", rates, floors, must=0.80, aim=0.95,
                   events=events, note=f"floor: the same without it; {PARTS} parts"),
            Answer("time of a claim, last tenth / first tenth", "", [claim_us[-1] / claim_us[0]], must=1.3, aim=1.1, more=False,
                   events=events, note=f"{claim_us[0] / 1000:.2f} ms and {claim_us[-1] / 1000:.2f} ms, medians")]


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
            bench.say(f"dead rows at both ends, pair {number + 1} of {bench.run.pairs}: without {floors[-1]:,.0f}/s, "
                      f"with {rates[-1]:,.0f}/s")
    finally:
        ends.db.drop()
    return Answer(f"{dead:,} dead rows at both ends, no vacuum", "events/s", rates, floors, must=0.80, aim=0.95, events=events,
                  note="floor: the relay in question 1; the first run is the first to find them dead")


def ask(bench):
    passing, keys = bench.run.size((5_000_000, 50_000), (500_000, 5_000))
    answers = under_a_snapshot(bench, passing, keys)
    dead, events, keys = bench.run.size((10_000_000, 500_000, 50_000), (500_000, 100_000, 10_000))
    return [*answers, between_dead_ends(bench, dead, events, keys)]
