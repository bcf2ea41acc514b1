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
EVENTS_MIN = 300
SURE_S = 0.5  # long enough to tell a rate from


def affordable(bench, hot, events, seconds):
    """As many as the relay delivers in so many seconds, where `events` would take longer: five pairs of 100,000 events, sent one
    by one, would take most of the hour that all questions have."""
    count = EVENTS_MIN
    while count < events:
        rate = drain_relay(bench, replace(hot, events=count))
        if count / rate >= SURE_S:
            return max(EVENTS_MIN, min(events, int(rate * seconds) // 100 * 100))
        count *= 6
    return events


def ask(bench):
    events, seconds = bench.run.size((100_000, 6), (50_000, 1))
    answers = []
    for name, destination, must, aim in SINKS:
        with destination(bench) as to:
            many = Drain(f"events of many keys to {name}", events, events // 10, **to)
            hot = replace(many, question=f"one hot key to {name}", keys=1, floor=None, by_relay=many)
            hot.events = affordable(bench, hot, events, seconds)
            answers.append(compare(bench, hot, must=must, aim=aim))
    return answers
