"""Rows of docs/proof.md about time, each test named by its row."""

from tests.support.noted import Noted
from tests.support.postgres import OWNER_ROLE
from tests.support.servers import HANG, Reply, wait_until
from tests.support.targets import http_receipts

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
    noted = Noted(db)
    one = relay(CONFIG.format(dsn=db.dsn, url=http.url, more=""))
    publish(db, 1, ", not_before => clock_timestamp() + interval '1.5 s'")
    publish(db, 2)
    publish(db, 3, key="'order-8'")
    wait_until(lambda: sent(http) == [3], what="what is due")
    wait_until(lambda: db.query("select delayed from outbox.status_parked") == [(1,)], what="the timer to be known")
    wait_until(lambda: sent(http) == [3, 1, 2], what="the timer")
    assert one.stop() == 0
    noted.check(http_receipts(http))


def test_p4_events_are_batched_to_the_next_full_step(db, relay, http):
    noted = Noted(db)
    one = relay(CONFIG.format(dsn=db.dsn, url=http.url, more=", delayed: pass"))
    connection = db.connect(autocommit=False)  # no relay sees them before they have been looked at
    with connection.cursor() as cursor:
        for payload in range(10):
            cursor.execute("select outbox.publish(null, 'task', %s, not_before => outbox.next_full('2 s', clock_timestamp() + '2 s'))", (str(payload),))
        cursor.execute("select bool_and(extract(second from not_before)::numeric % 2 = 0) from outbox.events")
        assert cursor.fetchone() == (True,)
    connection.commit()
    connection.close()
    publish(db, 10)
    wait_until(lambda: sent(http)[:1] == [10] and sorted(sent(http)) == [*range(11)], what="all, the one that does not wait first")
    assert one.stop() == 0
    noted.check(http_receipts(http))


def test_t12_a_periodic_task_is_inserted_once_for_each_of_its_times(db, relay, http):
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('tasks'); select outbox.schedule_set('tick', 'tasks', every => '1 s', missed => 'all', key => 'clock', payload => '1')")
    noted = Noted(db)
    relays = [relay(CONFIG.format(dsn=db.dsn, url=http.url, more="")) for _ in range(2)]
    wait_until(lambda: len(http.requests) >= 4, what="some ticks")
    db.query(f"set role {OWNER_ROLE}; select outbox.schedule_drop('tick')")
    wait_until(lambda: db.value("select count(*) from outbox.events") == 0, what="the last one")
    assert [one.stop() for one in relays] == [0, 0]
    times = [request.headers["scheduled-at"] for request in http.requests]
    assert len(times) == len(set(times))
    noted.check(http_receipts(http))


def test_l7_a_queue_works_in_its_window_only(db, relay, http):
    shut, opened = (db.value("select to_char(now() at time zone 'Asia/Tokyo' + %s * interval '1 h', 'HH24:MI') || '-' ||"
                             " to_char(now() at time zone 'Asia/Tokyo' + %s * interval '1 h', 'HH24:MI')", hours) for hours in [(2, 22), (22, 2)])
    publish(db, 1)
    one = relay(CONFIG.format(dsn=db.dsn, url=http.url, more=f', window: "{shut}", window_zone: Asia/Tokyo'), until_empty=True)
    assert one.wait() == 0 and sent(http) == [], "there is nothing to do for it now"
    relay(CONFIG.format(dsn=db.dsn, url=http.url, more=f', window: "{opened}", window_zone: Asia/Tokyo'))
    wait_until(lambda: sent(http) == [1], what="the task")


def test_l7_a_class_of_jobs_that_is_slow_holds_up_no_other(db, relay, http):
    classes = "".join(f'  {name}: {{ sink: {name}, where: "type {is_it} \'report\'" }}\n' for name, is_it in (("reports", "="), ("others", "is distinct from")))
    sinks = "".join(f'  {name}: {{ type: http, url: "{http.url}/{name}", max_in_flight: 1 }}\n' for name in ("reports", "others"))
    db.query("insert into outbox.events (type, payload) select 'report', n::text::jsonb from generate_series(0, 4) n;"
             "insert into outbox.events (type, payload) select 'mail', n::text::jsonb from generate_series(5, 24) n")
    http.rule(lambda request: request.target == "/reports", Reply(action=HANG))
    relay(f'database: "{db.dsn}"\nsinks:\n{sinks}queues:\n{classes}')
    wait_until(lambda: len(http.requests) == 21, what="all of one class, and the first of the other")
    assert sorted(request.json() for request in http.requests if request.target == "/others") == list(range(5, 25))
    wait_until(lambda: db.query("select distinct type, count(*) from outbox.events group by 1") == [("report", 5)], what="the rows of one class to go")


def test_t2_a_task_is_enqueued_once(db, relay, http):
    for payload in range(3):
        publish(db, payload, ", dedupe_key => 'sync'")
    relay(CONFIG.format(dsn=db.dsn, url=http.url, more=""))
    wait_until(lambda: db.value("select count(*) from outbox.events") == 0, what="it to be done")
    assert sent(http) == [0]


def test_t10_a_task_enqueued_again_while_it_runs_is_run_again_afterwards(db, relay, http):
    noted = Noted(db)
    http.respond = lambda request: Reply(200, delay_s=0.5)
    one = relay(CONFIG.format(dsn=db.dsn, url=http.url, more=""))
    publish(db, 0, ", dedupe_key => 'sync', on_duplicate => 'again'")
    wait_until(lambda: http.requests, what="it to run")
    again = [publish(db, payload, ", dedupe_key => 'sync', on_duplicate => 'again'") for payload in (1, 2)]
    wait_until(lambda: db.value("select count(*) from outbox.events") == 0, what="all to be done")
    assert sent(http)[0] == 0 and sent(http)[-1] == 2 and one.stop() == 0
    noted.check(http_receipts(http), replaced=[] if 1 in sent(http) else again[:1])
