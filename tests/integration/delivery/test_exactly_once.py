"""Fifty thousand events, eight producers, four relays, a real server behind each sink: every event exactly once and in
order within its key, with the bytes it had, from one relay at a time; an orderly stop in the middle, an empty table and a
full archive at the end."""

import signal

import pytest

from tests.support.shop import Shop

EVENTS = 50_000
RELAYS = 4


@pytest.mark.parametrize("target", ["file", "exec", "redis", "http", "kafka"], indirect=True)
def test_four_relays_deliver_everything_exactly_once_and_in_order(db, relay, target):
    shop = Shop(db, orders=5000)

    def start(name, **options):
        return relay(shop.config(target.sink(relay=name, **target.patience), after="archive", **target.queue), **options)

    first = [start(f"first-{n}") for n in range(RELAYS)]
    shop.produce(EVENTS)
    # Half of them leave in the middle; what they had in flight must neither be lost nor come twice.
    for one in first[:RELAYS // 2]:
        one.send(signal.SIGTERM)
    second = [start(f"second-{n}", until_empty=True) for n in range(RELAYS // 2)]
    assert [one.wait(60) for one in first[:RELAYS // 2]] == [0, 0]
    assert [one.wait(120) for one in second] == [0, 0]
    assert [one.stop() for one in first[RELAYS // 2:]] == [0, 0]
    assert shop.check(target.receipts(), archived=True).counts["delivered"] == EVENTS
