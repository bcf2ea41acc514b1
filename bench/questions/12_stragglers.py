"""What does the relay reach when 1 % of the requests take 5 s, and are finished keys settled meanwhile?"""

import time

from bench.answer import Answer, BenchFailed
from bench.receiver import Load, Receiver, reach

DELAYS = (0.01, 100, 5)  # seconds; every so many requests; those take so many seconds
JUDGED_S = 3 * DELAYS[2]  # the least of a window: connections fill with stragglers and come free again together, every 5 s
KEYS = 10_000
LOOK_S = 0.1  # between two looks at the table


class Settling:
    """How long rows of finished keys stay: from the answer to a key's last event to the first look that misses its row.
    Keys take turns, so the last turn has each key's last event."""

    def __init__(self, bench, receiver, load):
        self.bench, self.receiver, self.load = bench, receiver, load
        self.waits, self.waiting, self.seen, self.looked_at = [], {}, 0, 0

    def watch(self, seconds):
        begin_at = time.time()
        with self.bench.db.connect() as connection, connection.cursor() as cursor:
            while time.time() < begin_at + seconds:
                answered = self.receiver.answered()
                for at, event in answered[self.seen:]:
                    if event > self.load.events - self.load.keys and at >= begin_at:
                        self.waiting[event] = at
                self.seen = len(answered)
                self.look(cursor)
                time.sleep(LOOK_S)

    def look(self, cursor):
        self.looked_at = time.time()
        cursor.execute("select id from outbox.events where id = any(%s)", (list(self.waiting),))
        left = {row[0] for row in cursor.fetchall()}
        self.waits += [self.looked_at - at for event, at in self.waiting.items() if event not in left]
        self.waiting = {event: at for event, at in self.waiting.items() if event in left}

    def longest_s(self):
        waits = self.waits + [self.looked_at - at for at in self.waiting.values()]
        if len(waits) < 100:
            raise BenchFailed(f"only {len(waits)} keys were finished while the table was watched")
        return max(waits)


def ask(bench):
    warm_s, window_s = bench.run.size((8, 20), (6, 5))
    with Receiver(*DELAYS) as receiver:
        ideal = Load.connections / receiver.mean_s
    load = Load(int(ideal * (warm_s + window_s + 4)) // KEYS * KEYS, KEYS, warm_s, window_s)
    with Receiver(DELAYS[0]) as receiver:
        share = receiver.check(int(ideal * DELAYS[0]), bench.run.size(2, 1))
    limits = {"must": 0.70, "aim": 0.90} if window_s >= JUDGED_S else {}
    rates, waits = [], []
    for number in range(1, bench.run.size(bench.run.pairs, 1) + 1):
        with Receiver(*DELAYS) as receiver:
            settling = Settling(bench, receiver, load)
            rates.append(reach(bench, receiver, load, settling.watch).rate)
            waits.append(settling.longest_s())
        bench.say(f"stragglers, run {number}: {rates[-1]:,.0f}/s of {ideal:,.0f}/s; the row of a finished key stayed "
                  f"{waits[-1]:.2f} s at most")
    return [Answer("HTTP, 1 % of requests take 5 s", "events/s", rates, [ideal] * len(rates), **limits, events=load.events,
                   note=f"floor: 256 connections / mean delay; a bare client of as many requests a second reached {share:.2f}"
                        + ("" if limits else f"; {window_s} s are too short to be judged: stragglers come in waves of {DELAYS[2]} s")),
            Answer("longest stay of a finished key's row", "s", waits, must=1, more=False, worst=True, events=load.events,
                   note=f"keys whose every event was answered; looked at each {LOOK_S} s")]
