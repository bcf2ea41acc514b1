"""How fast is one hot key, for each sink, beside events of many keys?"""

from dataclasses import replace

from bench import destinations
from bench.drain import Drain, compare, drain_relay

SINKS = (  # name, destination, must, aim
    ("discard", destinations.discard, None, None),
    ("a file", destinations.file, None, None),
    ("Redis", destinations.redis, 0.25, 0.5),
    ("HTTP", destinations.http, None, None),
    ("Kafka", destinations.kafka, 0.25, 0.5),
)
SECONDS = 4
EVENTS_MIN, STEP = 300, 6
SURE_S = 0.5  # long enough to tell a rate from


def affordable(bench, hot, events, seconds):
    """As many as the relay delivers in so many seconds, where `events` would take longer: five pairs of 100,000 events, sent one
    by one, would take most of the hour that all questions have.

    Whatever disturbs a run makes it longer, so the shorter of two counts: a Kafka broker that has just started, for one, keeps its
    first producer waiting for half a second. What the fewest events take is what starting costs, and no part of the rate."""
    def shorter_s(count):
        return min(count / drain_relay(bench, replace(hot, events=count)) for _ in range(2))

    start_s = shorter_s(EVENTS_MIN)
    count = EVENTS_MIN * STEP
    while count < events:
        more_s = shorter_s(count) - start_s
        if more_s >= SURE_S:
            rate = (count - EVENTS_MIN) / more_s
            return max(EVENTS_MIN, min(events, int(rate * seconds) // 100 * 100))
        count *= STEP
    return events


def ask(bench):
    events = bench.run.size(100_000, 40_000)
    answers = []
    for name, destination, must, aim in SINKS:
        if bench.run.quick and must is None:
            continue
        with destination(bench) as to:
            many = Drain(f"events of many keys to {name}", events, events // 10, **to)
            hot = replace(many, question=f"one hot key to {name}", keys=1, floor=None, by_relay=many)
            if not bench.run.quick:  # which has the quick ones only
                many.events = hot.events = affordable(bench, hot, events, SECONDS)
                many.keys = many.events // 10
            answers.append(compare(bench, hot, must=must, aim=aim))
    return answers
