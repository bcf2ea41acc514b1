"""How close to latency x connections is the relay when an HTTP receiver takes 50 ms a request?"""

from bench.answer import Answer
from bench.receiver import Load, Receiver, reach

DELAY_S = 0.05


def ask(bench):
    window_s = bench.run.size(8, 2)
    ideal = Load.connections / DELAY_S
    load = Load(int(ideal * (window_s + 4)), 10_000, 1, window_s)
    with Receiver(DELAY_S) as receiver:
        share = receiver.check(load.connections, bench.run.size(2, 1))
    rates = []
    for number in range(1, bench.run.pairs + 1):
        with Receiver(DELAY_S) as receiver:
            rates.append(reach(bench, receiver, load).rate)
        bench.say(f"receiver of 50 ms, run {number} of {bench.run.pairs}: {rates[-1]:,.0f}/s of {ideal:,.0f}/s")
    return [Answer("HTTP receiver of 50 ms", "events/s", rates, [ideal] * len(rates), must=0.90, aim=0.97, events=load.events,
                   note=f"floor: 256 connections / 50 ms; a bare client reached {share:.2f} of it")]
