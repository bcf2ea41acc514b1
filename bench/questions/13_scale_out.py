"""How does the rate grow with 1, 2, 4 and 8 relays, when each may have 10 requests of 20 ms in flight?"""

from bench.answer import Answer
from bench.receiver import Load, Receiver, reach

DELAY_S = 0.02
CONNECTIONS = 10  # of each relay: 500 events/s, so that four of them do not need two CPUs
RELAYS = (1, 2, 4, 8)
LIMITS = {4: {"must": 0.85, "aim": 0.95}}
FEW = (1, *LIMITS)  # what is asked for, and what it is held against


def ask(bench):
    window_s = bench.run.size(4, 2)
    one = CONNECTIONS / DELAY_S
    some = bench.run.size(RELAYS, FEW)
    loads = {relays: Load(20_000 + int(one * relays * (window_s + 5)), 20_000, 1.5, window_s, CONNECTIONS, relays)
             for relays in some}
    with Receiver(DELAY_S) as receiver:
        receiver.check(CONNECTIONS * some[-1], bench.run.size(2, 1))
    rates, duplicates = {relays: [] for relays in some}, []
    for number in range(1, bench.run.size(bench.run.pairs, 1) + 1):
        twice = 0
        for relays, load in loads.items():
            with Receiver(DELAY_S) as receiver:
                reached = reach(bench, receiver, load)
            rates[relays].append(reached.rate)
            twice += reached.duplicates
        duplicates.append(twice)
        bench.say(f"{', '.join(map(str, some))} relays, round {number}: {', '.join(f'{rates[relays][-1]:,.0f}/s' for relays in some)}")
    floors = {relays: [rate * relays for rate in rates[1]] for relays in some}
    answers = [Answer(f"{relays} relays, receiver of 20 ms", "events/s", rates[relays], floors[relays],
                      **LIMITS.get(relays, {}), events=loads[relays].events,
                      note=f"floor: {relays} x the rate of one relay") for relays in some[1:]]
    return [*answers, Answer("events that were delivered twice", "events", duplicates, must=0, aim=0, more=False, worst=True,
                             note="in all runs of a round")]
