"""Which fault, when, on whom and for how long, as a function of a seed.

    steps = schedule(seed=7, seconds=20, sink="http")
    print(text(steps))

Faults come from a deck of every kind that the sink allows, shuffled anew when it is used up, so that a run of some length
has met all of them. faults.py carries them out."""

import random
from collections import namedtuple

RELAYS = 4

# who: number of the relay it is done to; None: to all of them, or to what they share. amount and pick: what the kind makes
# of them (bytes, seconds, events; which of several).
Step = namedtuple("Step", "at_s kind who lasts_s amount pick")
Kind = namedtuple("Kind", "name who lasts_s amount", defaults=["all", (0, 0), (0, 0)])

ONE, SOME, ALL = "one", "some", "all"  # relays; some: one of them or all

PROCESS = [
    Kind("relay.kill", ONE),
    Kind("relay.restart", ONE),
    Kind("relay.pause", ONE, (0.2, 2)),
    Kind("relay.hangup", SOME),
]
SERVER = [
    Kind("session.terminate", ONE),
    Kind("session.cancel", ONE),
    Kind("server.fast"),
    Kind("server.immediate"),
    Kind("server.backend_dies", ONE),
]
TABLE = [
    Kind("table.locked", ALL, (0.2, 1.5)),
    Kind("table.locked_for_long", ALL, (6, 6.5)),
    Kind("table.vacuum"),
    Kind("table.old_snapshot", ALL, (1, 4)),
    Kind("table.rows_locked", ALL, (0.2, 1.5), (10, 200)),
    Kind("table.keys_locked", ALL, (0.5, 3), (1, 30)),
]
# Between the relays and PostgreSQL ("database") or the sink ("sink").
NETWORK = [
    Kind("latency", SOME, (1, 3), (0.01, 0.1)),
    Kind("slice", SOME, (0.5, 2), (20, 200)),
    Kind("silence", SOME, (0.3, 2)),
    Kind("swallow", SOME, (0.3, 2)),
    Kind("reset", SOME),
    Kind("cut", ONE, (1, 2), (1, 8000)),
    Kind("refuse", SOME, (0.2, 2)),
]
COMMIT_LOST = [Kind("database.commit_lost", SOME, (0.5, 1))]
SINK = {
    "http": [
        Kind("http.away", ALL, (0.2, 2)),
        Kind("http.slow", ALL, (1, 3), (0.05, 0.3)),
        Kind("http.busy", ALL, (0.5, 2)),
        Kind("http.refuses_keys", ALL, (1, 3), (3, 20)),
        Kind("http.rejects", ALL, (0, 0), (1, 10)),
        Kind("http.late", ALL, (0, 0), (1, 8)),
        Kind("http.half", ALL, (0, 0), (1, 20)),
        Kind("http.drops", ALL, (0, 0), (1, 20)),
    ],
    "redis": [
        Kind("redis.killed", ALL, (0, 2)),
        Kind("redis.stopped", ALL, (0, 2)),
        Kind("redis.paused", ALL, (0.2, 2)),
        Kind("redis.slow", ALL, (0.2, 2)),
        Kind("redis.full", ALL, (0.5, 2)),
        Kind("redis.read_only", ALL, (0.5, 2)),
        Kind("redis.hangs_up"),
    ],
    "kafka": [
        Kind("kafka.killed", ALL, (0, 2)),
        Kind("kafka.stopped", ALL, (0, 2)),
        Kind("kafka.paused", ALL, (0.2, 3)),
    ],
    "file": [
        Kind("file.locked", ALL, (0.2, 2)),
        Kind("file.full", SOME, (0.5, 2)),
    ],
}


def kinds(sink):
    """Every kind of fault that a run with this sink draws from."""
    database = [kind._replace(name=f"database.{kind.name}") for kind in NETWORK]
    # A broker tells its clients where it is, so the relays share one way to it; a file is reached without a network.
    who = ALL if sink == "kafka" else SOME
    to_sink = [] if sink == "file" else [kind._replace(name=f"sink.{kind.name}", who=ALL if who == ALL else kind.who)
                                         for kind in NETWORK]
    return PROCESS + SERVER + TABLE + COMMIT_LOST + database + to_sink + SINK[sink]


def schedule(seed, seconds, sink, every_s=2.0, spared=()):
    """The steps, by time. spared: relays whose process goes on to the end."""
    rng = random.Random(f"{seed} {sink}")
    steps, deck = [], []
    for number in range(int(seconds / every_s)):
        if not deck:
            deck = kinds(sink)
            rng.shuffle(deck)
        steps.append(_draw(rng, deck.pop(), every_s * number, every_s, spared))
    return steps


def _draw(rng, kind, at_s, every_s, spared):
    """Draws as often for one kind as for another, so that a change of one leaves the others where they are."""
    who, everyone = rng.randrange(RELAYS), rng.random() < 0.3
    when, lasts, amount, pick = rng.random(), rng.random(), rng.random(), rng.randrange(1 << 30)
    if kind.name in ("relay.kill", "relay.restart"):
        who = [each for each in range(RELAYS) if each not in spared][who % (RELAYS - len(spared))]
    if kind.who == ALL or kind.who == SOME and everyone:
        who = None
    return Step(round(at_s + when * every_s / 2, 2), kind.name, who, round(_within(kind.lasts_s, lasts), 2),
                round(_within(kind.amount, amount), 3), pick)


def _within(limits, share):
    return limits[0] + share * (limits[1] - limits[0])


def text(steps):
    """A line for each."""
    return "\n".join(_line(step) for step in steps)


def _line(step):
    whom = "" if step.who is None else f", relay {step.who}"
    lasts = f", for {step.lasts_s:g} s" if step.lasts_s else ""
    return f"{step.at_s:7.2f} s  {step.kind}{whom}{lasts}{f', {step.amount:g}' if step.amount else ''}"
