"""A receiver that is slower than what comes: nobody waits much longer than in the order of age, and what is new is still
delivered while it is new."""

from tests.support.process import wait_until
from tests.support.servers import Reply

KEYS, OF_EACH = 1200, 2
PLACES = 4
AHEAD = 4 * PLACES + 64  # at most so many are claimed and wait, and a little more, for a claim is not made of one end alone


def start(db, relay, http, share):
    http.respond = lambda request: Reply(delay_s=0.005)
    db.query("insert into outbox.events (aggregateid, type, payload) select 'old-' || n %% %s, 'old', '{}'"
             " from generate_series(1, %s) n", (KEYS, KEYS * OF_EACH))
    return relay(f'database: "{db.dsn}"\nsinks:\n  web: {{ type: http, url: "{http.url}", max_in_flight: {PLACES} }}\nqueues:\n'
                 f"  orders: {{ sink: web, oldest_share: {share} }}\n")


def delivered(http):
    return [int(request.headers["event-id"]) for request in http.requests]


def test_later_events_of_a_key_do_not_come_before_older_events_of_others(db, relay, http):
    one = start(db, relay, http, share=100)
    wait_until(lambda: len(http.requests) >= KEYS, 120, "half of the events to be delivered")
    before_their_turn = [event for place, event in enumerate(delivered(http)[:KEYS], 1) if event - place > AHEAD]
    one.kill()
    assert len(before_their_turn) < KEYS / 4  # those of the first claims: nothing is known of the receiver yet


def test_first_event_of_a_key_is_delivered_while_it_is_new_and_a_later_one_waits_for_its_turn(db, relay, http):
    one = start(db, relay, http, share=50)
    wait_until(lambda: len(http.requests) >= 300, 120, "some events to be delivered")
    first, later = (db.value("insert into outbox.events (aggregateid, type, payload) values (%s, 'new', '{}') returning id", (key,))
                    for key in ("new", f"old-{KEYS // 2}"))
    then = len(http.requests)
    wait_until(lambda: first in delivered(http), 120, "the first event of its key to be delivered")
    events = delivered(http)
    one.kill()
    assert events.index(first) - then <= AHEAD + 50  # those that come while its claim is on its way
    assert later not in events
