"""Rows of SEEDS.md about time, each test named by its row; docs/queues.md lists them."""

from tests.support.servers import wait_until

CONFIG = """
database: "{dsn}"
sinks: {{ hook: {{ type: http, url: "{url}" }} }}
queues: {{ tasks: {{ sink: hook{more} }} }}
"""


def sent(http):
    return [request.json() for request in http.requests]


def publish(db, payload, arguments="", key="'order-7'"):
    return db.value(f"select outbox.publish({key}, 'task', '{payload}'{arguments})")


def test_p4_a_timer_is_ignored_before_its_time(db, relay, http):
    relay(CONFIG.format(dsn=db.dsn, url=http.url, more=""))
    publish(db, 1, ", not_before => clock_timestamp() + interval '1.5 s'")
    publish(db, 2)
    publish(db, 3, key="'order-8'")
    wait_until(lambda: sent(http) == [3], what="what is due")
    wait_until(lambda: db.query("select delayed from outbox.status_parked") == [(1,)], what="the timer to be known")
    wait_until(lambda: sent(http) == [3, 1, 2], what="the timer")


def test_p4_events_are_batched_to_the_next_full_step(db, relay, http):
    relay(CONFIG.format(dsn=db.dsn, url=http.url, more=", delayed: pass"))
    for payload in range(10):
        publish(db, payload, ", not_before => outbox.next_full('2 s')", key="null")
    assert db.value("select bool_and(extract(second from not_before)::numeric % 2 = 0) from outbox.events")
    publish(db, 10)
    wait_until(lambda: sent(http)[:1] == [10] and sorted(sent(http)) == [*range(11)], what="all, the one that does not wait first")
