"""Kafka refuses events in mid-run, with others of their keys in flight behind them, or goes away: what is behind an event
never arrives before it, and nobody but the event at fault is blamed."""

import time

import pytest

from tests.support.fault_run import FaultRun
from tests.support.process import wait_until
from tests.support.shop import Shop
from tests.support.targets import KafkaTarget

KEYS = 20  # few, so that each goes in long runs
EVENTS = 8000
IN_FLIGHT = 1024  # fewer than events: that so many may come again is to mean something
LARGE = 3000
PATIENT = {"down_after": "60s"}  # a broker that the machine has no time for is not one that is gone

# Bytes that cannot be compressed.
ENLARGE = """
update public.events set payload = (select string_agg(uuid_send(gen_random_uuid()), '') from generate_series(1, %s))
where id = any (%s)"""


@pytest.fixture
def run(relay, db, kafka, topic):
    return FaultRun(relay, Shop(db), KafkaTarget(kafka, topic), keys=KEYS)


def limit(run, kafka, max_message_bytes):
    """A topic that has the limit from its beginning: to alter one takes the broker a moment."""
    kafka.create_topic(f"{run.target.topic}-limited", 12, max_message_bytes=max_message_bytes)
    run.target = KafkaTarget(kafka, f"{run.target.topic}-limited")


def enlarge(run, ids, most):
    """No topic with this limit takes these."""
    run.db.query(ENLARGE, (most // 16 + 1, ids))
    run.shop.journal = [event._replace(doomed=True) if event.id in ids else event for event in run.shop.journal]


def finish(run):
    """Where nothing was done to the broker, nothing comes twice."""
    print(f"{run.finish()} came again, of {len(run.faults)} faults; called down {len(run.logged('msg=sink.down'))} times")
    assert run.faults or not run.logged("msg=sink.down"), "a broker that was there was called down"


def doomed(run, count):
    """Some events in the middle of their keys."""
    events = run.shop.committed
    return [event.id for event in events[len(events) // 4::len(events) // 2 // count][:count]]


@pytest.mark.parametrize("most", [LARGE, 200_000])
def test_event_that_is_refused_in_mid_run(run, kafka, most):
    """With the small limit every batch is too large at first. One dead letter each, no duplicate, nothing out of order."""
    run.add(EVENTS)
    ids = doomed(run, 5)
    limit(run, kafka, most)
    enlarge(run, ids, most)
    run.start(sink=PATIENT, until_empty=True)
    finish(run)
    assert sorted(run.db.query("select event_id from outbox.dead")) == sorted((id,) for id in ids)


def test_key_of_a_refused_event_waits_where_it_is(run, kafka):
    """on_exhausted: park. What is behind it comes when the limit is raised and the key is resumed."""
    run.add(EVENTS)
    ids = doomed(run, 3)
    limit(run, kafka, 200_000)
    run.db.query(ENLARGE, (200_000 // 16 + 1, ids))
    run.shop.journal = [event._replace(hash=None) if event.id in ids else event for event in run.shop.journal]
    run.start(sink=PATIENT, retry="{ on_exhausted: park }")
    closed = [event.key for event in run.shop.committed if event.id in ids]
    behind = sum(event.key in closed for event in run.shop.committed)
    wait_until(lambda: run.shop.left() < behind and len(run.logged("key.closed")) == 3, 60, "the others to be delivered")
    wait_until(lambda: run.db.value("select count(distinct order_id) from public.events") == 3, 60, "three keys to be left")
    kafka.alter_topic(run.target.topic, max_message_bytes=1_000_000)
    run.db.query("update outbox.parked set next_at = now()")
    finish(run)


def test_limit_that_is_lowered_and_raised_in_mid_run(run, kafka, topic):
    """No event is too large, but batches are, all at once."""
    run.add(4 * EVENTS)
    run.start(sink=PATIENT)
    for most in (2000, 1_000_000, 2000, 1_000_000):
        left = run.shop.left()
        kafka.alter_topic(topic, max_message_bytes=most)
        wait_until(lambda left=left: run.shop.left() < max(left - 500, 1), 60, "some to be delivered")
    finish(run)
    run.no_failures()


def test_queue_of_the_producer_that_is_full_holds_the_rest_back(run, kafka):
    """It has room for a few of what the relay would have in flight."""
    run.add(EVENTS // 2)
    few = f'{{ bootstrap.servers: "{kafka.bootstrap}", queue.buffering.max.messages: 10 }}'
    run.start(sink={"properties": few, **PATIENT}, until_empty=True)
    finish(run)
    run.no_failures()


def test_topic_that_is_not_there_for_a_while(run, kafka, topic):
    """What was in it is gone with it, so only what comes later is checked, by its order."""
    run.add(EVENTS)
    run.start()
    wait_until(lambda: run.shop.left() < EVENTS * 0.9, 60, "the drain to be under way")
    kafka.delete_topic(topic)
    run.add(EVENTS)
    run.wait_for_log("sink.down")
    kafka.create_topic(topic, 12)
    run.wait_until_empty()
    run.stop()
    run.no_failures()
    last = {}
    for receipt in run.target.receipts():
        assert receipt.id > last.get(receipt.key, 0), "a later event of its key came before it"
        last[receipt.key] = receipt.id


@pytest.mark.parametrize("way", ["killed", "stopped"])
def test_broker_that_goes_in_mid_run(run, kafka, way):
    kafka.create_topic(f"{run.target.topic}-timed", 12, message_timestamp_type="LogAppendTime")
    run.target = KafkaTarget(kafka, f"{run.target.topic}-timed", timed=True)
    run.add(2 * EVENTS)
    run.start(sink={"max_in_flight": IN_FLIGHT})
    for _ in range(2):
        left = run.shop.left()
        wait_until(lambda left=left: run.shop.left() < left, 60, "the drain to be under way")
        run.fault("the broker goes", IN_FLIGHT)  # once, however often it is called down until it is back
        (kafka.kill if way == "killed" else kafka.stop)()
        run.add(EVENTS)
        time.sleep(1)
        kafka.start()
    finish(run)
    run.no_failures()
