"""Does anybody wait too long when producers are 1.5 times faster than the relay and 10,000 old keys wait already?"""

import statistics
import time
from dataclasses import dataclass

from bench.answer import Answer, BenchFailed
from bench.harness import last_stats, read_sql, run_floor
from bench.receiver import Receiver
from tests.support.process import wait_until

DELAY_S, CONNECTIONS = 0.02, 20
RATE = CONNECTIONS / DELAY_S  # the relay's, by the receiver that it has
OVERLOAD = 1.5
PRODUCERS = 8
LEAST_S = 1.0  # waits that oldest-first would keep below this count as this: a claim takes its time, too


def produce(bench, seconds):
    """The wall clock at the end."""
    run_floor("insert", bench.db.superuser_dsn, read_sql("arrival_insert.sql"), PRODUCERS, RATE * OVERLOAD,
              int(RATE * OVERLOAD * seconds))
    return time.time()


def run(bench, old_keys, seconds):
    """({id: when it came}, {id: when it was answered}, when the producers were done). What was there before the relay came
    with it."""
    with Receiver(DELAY_S) as receiver:
        relay = bench.relay(receiver.sink(CONNECTIONS))
        try:
            bench.db.query("truncate public.arrivals")
            bench.refill(old_keys, old_keys)
            begun_at = time.time()
            relay.start()
            ended_at = produce(bench, seconds)
            count = old_keys + bench.db.value("select count(*) from public.arrivals")
            wait_until(lambda: len(receiver.answered()) >= count, 60 + count / RATE * 3, "all events to be answered", 0.2)
            if relay.stop() != 0 or int(last_stats(relay)["delivered"]) != count:
                raise BenchFailed(f"the relay delivered {last_stats(relay)['delivered']} of {count:,} events")
            answers = receiver.answered()
        finally:
            relay.close()
    came = dict.fromkeys(range(1, old_keys + 1), begun_at)
    came.update(bench.db.query("select id, extract(epoch from created_at)::float8 from public.arrivals"))
    answered = {event: at for at, event in answers}
    if len(answers) != count or came.keys() != answered.keys():
        raise BenchFailed(f"{len(answers):,} answers for {len(answered):,} of {count:,} events")
    return came, answered, ended_at


def longest_wait(came, answered, least_s=LEAST_S):
    """The most that an event waited, of what it would have in strict order of age with the same moments of delivery, or of
    least_s where that is less. With 0, what would not have waited at all is left out."""
    strict = dict(zip(sorted(came), sorted(answered.values())))
    would_s = {event: max(strict[event] - at, least_s) for event, at in came.items()}
    return max((answered[event] - came[event]) / would_s[event] for event in came if would_s[event] > 0)


@dataclass
class Result:
    wait: float  # the longest, of oldest-first's
    bare_wait: float  # with waits below LEAST_S as they are
    freshness_s: float
    overload: float  # events that came, over those delivered meanwhile
    count: int
    aged: int  # events that the freshness is of
    aged_share: float  # of the new ones


def judge(bench, number, came, answered, ended_at, old_keys):
    ages = [at - came[event] for event, at in answered.items() if event > old_keys and at < ended_at]
    rate = sum(at < ended_at for at in answered.values()) / (ended_at - min(answered.values()))
    arrivals = (len(came) - old_keys) / (ended_at - min(came.values()))
    result = Result(longest_wait(came, answered), longest_wait(came, answered, 0), statistics.median(ages), arrivals / rate, len(came), len(ages),
                    len(ages) / (len(came) - old_keys))
    bench.say(f"fairness, run {number}: {arrivals:,.0f} events/s came, {rate:,.0f}/s were delivered; longest wait {result.wait:.2f} x oldest-first, "
              f"{result.bare_wait:.2f} x where waits below {LEAST_S:g} s count as they are, p50 of new events {result.freshness_s:.2f} s")
    return result


def ask(bench):
    old_keys, seconds, runs = bench.run.size((10_000, 60, 3), (1_000, 6, 1))
    bench.db.psql(read_sql("arrival_table.sql"))
    with Receiver(DELAY_S) as receiver:
        receiver.check(CONNECTIONS, bench.run.size(2, 1))
    results = [judge(bench, number, *run(bench, old_keys, seconds), old_keys) for number in range(1, runs + 1)]
    note = (f"{seconds} s, {' and '.join(f'{result.overload:.2f}' for result in results)} times as many as delivered, {old_keys:,} old keys; an HTTP "
            f"receiver that allows {RATE:,.0f}/s")
    return [Answer("longest wait / that of oldest-first", "", [result.wait for result in results], must=2, aim=1.5, more=False, worst=True, events=results[0].count,
                   note=f"{note}; what oldest-first would keep waiting for less than {LEAST_S:g} s counts as {LEAST_S:g} s: without that "
                        f"{statistics.median(result.bare_wait for result in results):.2f}"),
            Answer("age of the new events delivered meanwhile, p50", "s", [result.freshness_s for result in results], must=1, more=False,
                   events=results[0].aged, note=f"{note}; of those delivered while the producers were at work, "
                                                f"{' and '.join(f'{result.aged_share:.0%}' for result in results)} of the new ones")]
