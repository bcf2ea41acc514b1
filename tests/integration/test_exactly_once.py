"""Fifty thousand events, eight producers, four relays, a real server behind each sink: every event exactly once and in
order within its key, an orderly stop in the middle, an empty table and a full archive at the end."""

import signal

import pytest

from tests.support.history import History
from tests.support.shop import Shop

EVENTS = 50_000
RELAYS = 4


@pytest.mark.parametrize("target", ["file", "redis", "http", "kafka"], indirect=True)
def test_four_relays_deliver_everything_exactly_once_and_in_order(db, relay, target):
    shop = Shop(db, orders=5000)
    config = shop.config(target.sink(), after="archive", **target.queue)
    first = [relay(config) for _ in range(RELAYS)]
    shop.produce(EVENTS)
    # Half of them leave in the middle; what they had in flight must neither be lost nor come twice.
    for one in first[:RELAYS // 2]:
        one.send(signal.SIGTERM)
    second = [relay(config, until_empty=True) for _ in range(RELAYS // 2)]
    assert [one.wait(60) for one in first[:RELAYS // 2]] == [0, 0]
    assert [one.wait(120) for one in second] == [0, 0]
    assert [one.stop() for one in first[RELAYS // 2:]] == [0, 0]
    assert shop.left() == 0
    assert len(shop.journal) == EVENTS
    History(shop.journal, target.receipts()).check()
    assert shop.archived() == EVENTS
    assert db.value("select count(distinct event_id) from outbox.archive") == EVENTS
    assert db.value("select count(*) from outbox.dead") + db.value("select count(*) from outbox.parked") == 0
