"""Statements that cannot be sent: each costs a connection and nothing else, also while a queue falls asleep and is woken."""

import pytest

from tests.support.servers import wait_until
from tests.support.shop import Shop
from tests.support.targets import FileTarget


@pytest.mark.parametrize("point", ["db.send", "db.round"])
def test_what_cannot_be_sent_costs_a_connection_and_no_event(db, relay, tmp_path, point):
    shop = Shop(db)
    target = FileTarget(tmp_path / "out")
    db.query("select outbox.install_wake('public.events')")
    shop.add(200, 20)
    faults = ",".join(f"{point}:{hit}:error" for hit in [*range(1, 11), *range(60, 240, 30)])
    one = relay(shop.config(target.sink(sync=False)), env={"PGCOURIER_FAULT": faults}, arguments=("--log-level=debug",))
    for times in (1, 2, 3):
        wait_until(lambda: shop.left() == 0, 60)
        wait_until(lambda: len(one.logged("msg=queue.rest ")) >= times, 60, "the queue to rest")
        shop.add(20, 20)
    wait_until(lambda: shop.left() == 0, 60)
    assert one.logged("made to fail")
    assert one.stop() == 0
    shop.check(target.receipts())
