"""Events that wait for their time: columns.not_before and publish(..., not_before =>)."""

import json
import os
import random
import time

import psycopg2
import pytest

from tests.support.history import Fault
from tests.support.postgres import OWNER_ROLE
from tests.support.process import stands_still
from tests.support.servers import HANG, Reply, run_command, wait_until
from tests.support.shop import Shop
from tests.support.targets import FileTarget
from tests.support.timers import CONFIG, WAITS, over_timers, put_into, sent

@pytest.fixture
def timers(db):
    return put_into(db)


def start(db, relay, http, delayed="hold"):
    return relay(CONFIG.format(dsn=db.dsn, url=http.url, delayed=delayed))


def test_an_event_holds_its_key_back_until_it_is_due(db, relay, http, timers):
    timers(e1=("a", -1), e2=("a", 1.5), e3=("a", -1), e4=("b", -1), e5=(None, 1), e6=(None, -1))
    start(db, relay, http)
    wait_until(lambda: sorted(sent(http)) == [1, 4, 6], what="what is due")
    wait_until(lambda: db.query(WAITS) == [(2, 2)], what="the two that are not to wait")
    assert db.query("select attempts, last_error, next_at - (select at from public.timers where id = event_id) < '100 ms'"
                    " from outbox.parked") == [(0, "", True)] * 2
    wait_until(lambda: len(sent(http)) == 6, what="the others")
    assert [event for event in sent(http) if event in (1, 2, 3)] == [1, 2, 3]
    wait_until(lambda: db.query("select id from public.timers") == db.query("select event_id from outbox.parked") == [], what="nothing to be left")


def test_an_event_lets_others_of_its_key_pass_until_it_is_due(db, relay, http, timers):
    timers(e1=("a", 2), e2=("a", -1), e3=("a", 2), e4=("b", -1), e5=(None, 2))
    start(db, relay, http, "pass")
    wait_until(lambda: sorted(sent(http)) == [2, 4], what="what is due")
    timers(e6=("a", -1))
    wait_until(lambda: sorted(sent(http)) == [2, 4, 6], 1.5, what="what is due")
    assert db.query(WAITS) == []
    wait_until(lambda: len(sent(http)) == 6, what="the others")
    assert [event for event in sent(http) if event in (1, 3)] == [1, 3]
    wait_until(lambda: db.query("select id from public.timers") == db.query("select event_id from outbox.parked") == [], what="nothing to be left")


@pytest.mark.parametrize("ordering", ["per_key", "lease"])
def test_an_event_that_others_pass_is_not_late_and_a_late_one_is(db, relay, http, timers, ordering):
    """It is claimed with its key, for a later event, before the look for what has become due finds it."""
    timers(e9=("a", -1))
    one = relay(CONFIG.format(dsn=db.dsn, url=http.url, delayed=f"pass\n    poll: {{ max: 5ms }}\n    ordering: {ordering}"))
    wait_until(lambda: sent(http) == [9], what="the first one")
    for event in range(1, 6):
        timers(**{f"e{event}": ("a", -0.001), f"e{event + 10}": ("a", -1)})
        wait_until(lambda: sent(http)[-2:] == [event, event + 10] and db.query("select id from public.timers") == [], what="both")
    db.query("insert into public.timers (id, k) values (8, 'a')")
    wait_until(lambda: sent(http)[-1] == 8 and db.query("select id from public.timers") == [], what="the late one")
    assert one.stop() == 0
    late = [line for line in one.log if "event.late" in line]
    assert len(late) == 1 and "event=8 " in late[0]
    assert one.logged("queue.stats.* late=1 ")


def test_what_becomes_due_in_front_of_a_key_that_waits_is_not_forgotten(db, relay, http, timers):
    timers(e1=("a", 1), e2=("a", -1))
    db.query("insert into outbox.parked (queue, key, event_id, attempts, next_at, last_error)"
             " values ('timers', 'a', 2, 3, now() + interval '2 s', 'no')")
    start(db, relay, http, "pass")
    wait_until(lambda: db.query("select event_id, attempts from outbox.parked") == [(1, 0)], what="the entry to point at it")
    wait_until(lambda: sent(http) == [1, 2], what="both")


def test_what_becomes_due_in_front_of_a_key_that_is_locked_waits_for_nobody_and_is_not_forgotten(db, relay, http, timers):
    """Whoever has the entry locked may wait for one that the look has made."""
    timers(e1=("a", 0.5), e2=("a", -1))
    db.query("insert into outbox.parked (queue, key, event_id, next_at, last_error) values ('timers', 'a', 2, now() + interval '1 h', 'no')")
    other = lock_entries(db)
    start(db, relay, http, "pass")
    wait_until(lambda: db.value("select clock_timestamp() > at + interval '3 s' from public.timers where id = 1"), what="looks that begin later")
    assert db.value("select count(*) from pg_stat_activity where wait_event_type = 'Lock'") == 0
    assert db.query("select event_id from outbox.parked") == [(2,)]
    other.close()
    wait_until(lambda: db.query("select event_id from outbox.parked") == [(1,)], what="the entry to point at it")


def test_what_is_committed_after_a_look_that_was_later_than_its_time_is_not_forgotten(db, relay, http, timers):
    """The keys wait, so that their entries alone say what is next."""
    timers(e2=("a", -1), e3=("b", 1), e4=("b", -1))
    db.query("insert into outbox.parked (queue, key, event_id, next_at, last_error)"
             " select 'timers', k, id, now() + interval '1 h', 'no' from public.timers where id in (2, 4)")
    start(db, relay, http, "pass")
    head = "select event_id from outbox.parked where key = %s"
    wait_until(lambda: db.value(head, ("b",)) == 3, what="a look that is later than that")
    db.query("insert into public.timers select 1, 'a', at from public.timers where id = 3")
    wait_until(lambda: db.value(head, ("a",)) == 1, 10, what="the entry to point at it")


def lock_entries(db):
    """A connection that has all entries locked until it is closed."""
    other = db.connect(autocommit=False)
    other.cursor().execute("select event_id from outbox.parked where queue = 'timers' for update")
    return other


def lateness(db, events):
    """By the database's clock, which is this machine's: never before, and soon after."""
    due = dict(db.query("select id, extract(epoch from at) from public.due"))
    late = [at - float(due[event]) for event, at in events]
    assert min(late) >= 0
    return sorted(late)


@pytest.mark.parametrize("delayed", ["hold", "pass"])
def test_every_event_comes_after_its_time_and_soon(db, relay, http, timers, delayed):
    arrived = []

    def note(request):
        arrived.append((request.json()["id"], time.time()))
        return Reply(200)

    http.respond = note
    start(db, relay, http, delayed)
    db.query("insert into public.timers select n, 'key-' || n % 150, clock_timestamp() + random() * interval '3 s'"
             " from generate_series(1, 300) n; create table public.due as select * from public.timers")
    wait_until(lambda: len(arrived) >= 300, 30, what="all of them")
    late = lateness(db, arrived)
    print(f"{delayed}: late by {late[150]:.3f} s, at most {late[-1]:.3f} s")
    assert len(late) == 300
    assert delayed == "hold" or late[150] < 1


def test_a_time_that_is_moved_to_later_counts(db, relay, http, timers):
    timers(e1=("a", 1), e2=("b", 1))
    start(db, relay, http)
    wait_until(lambda: db.query(WAITS) == [(2, 2)], what="both to wait")
    db.query("update public.timers set at = 'infinity' where id = 1")
    wait_until(lambda: sent(http) == [2], what="the other one")
    wait_until(lambda: db.query("select event_id, attempts, next_at = 'infinity' from outbox.parked") == [(1, 0, True)],
               what="it to wait without end")


def test_what_never_becomes_due_is_delayed_and_not_closed(db, relay, http, timers, tmp_path):
    timers(e1=("a", -1))
    db.query("update public.timers set at = 'infinity'")
    start(db, relay, http)
    wait_until(lambda: db.query("select event_id from outbox.parked") == [(1,)], what="it to wait")
    assert db.query("select delayed, closed from outbox.status_parked") == [(1, 0)]
    assert db.query("select delayed, closed from outbox.overview where queue = 'timers'") == [(1, 0)] and db.query("select * from outbox.stuck") == []
    path = tmp_path / "operator.yaml"
    path.write_text(CONFIG.format(dsn=db.operator_dsn, url=http.url, delayed="hold"))
    db.let_operator_in("public.timers")
    for words in (["list"], ["retry", "--all"], ["drop", "--all"], ["drop", "--error", "%"], ["drop", "--key", "a"]):
        run_command("dead", *words, "-c", str(path))
    assert db.query("select event_id, next_at = 'infinity' from outbox.parked") == [(1, True)] and db.query("select id from public.timers") == [(1,)]


def test_a_time_that_is_moved_to_earlier_counts_when_relays_are_told(db, relay, http, timers):
    timers(e1=("a", 3600), e2=("a", -1), e3=("b", 3600), e4=("b", -1), e5=(None, 3600))
    start(db, relay, http)
    wait_until(lambda: db.query(WAITS) == [(3, 3)], what="all to wait")
    db.query("update public.timers set at = now() where id in (1, 5); delete from public.timers where id = 3")
    assert db.value("select outbox.look_again('timers', 'a')") == 1
    wait_until(lambda: sent(http) == [1, 2], what="that key")
    assert db.value("select outbox.look_again('timers')") == 2
    wait_until(lambda: sorted(sent(http)) == [1, 2, 4, 5], what="all keys")
    assert db.value("select outbox.look_again('timers')") == 0


def test_a_look_again_leaves_failures_leases_and_pauses_alone(db):
    db.query("insert into outbox.parked (queue, key, event_id, attempts, next_at, last_error, token, resume_at) values"
             " ('q', 'failed', 1, 1, 'infinity', 'no', null, null), ('q', 'leased', 2, 0, now() + interval '1 h', '', gen_random_uuid(), null),"
             " ('q', 'paused', 3, 0, 'infinity', '', null, now()), ('other', 'delayed', 4, 0, now() + interval '1 h', '', null, null)")
    assert db.value("select outbox.look_again('q')") == 0
    with pytest.raises(psycopg2.errors.InvalidParameterValue):
        db.query("select outbox.look_again('')")


def test_publish_delays_an_event_of_the_outbox_without_any_setting(db, relay, http):
    db.query("select outbox.publish('a', 't', '1', not_before => now() + interval '1 h')")
    db.query("select outbox.publish('b', 't', '2')")
    relay(CONFIG.format(dsn=db.dsn, url=http.url, delayed="hold").replace("    table: public.timers\n    columns: { key: k, not_before: at }\n", ""))
    wait_until(lambda: [request.json() for request in http.requests] == [2], what="the other one")
    wait_until(lambda: db.query(WAITS) == [(1, 1)], what="it to wait")


# ---- workers ----

def test_a_worker_is_given_nothing_before_its_time(db, timers):
    worker = over_timers(db, "hold")
    timers(**{f"e{n}": (f"key-{n}", 2) for n in range(1, 41)}, e50=("key-1", -1), e51=("z", -1), e52=(None, 2), e53=(None, -1))
    taken = worker.take(2)
    assert [event.id for event in taken] == [51, 53], "as many as it has room for, whatever waits before them"
    assert worker.take(2) == []
    assert db.query("select delayed from outbox.status_parked") == [(41,)]
    assert db.query("select count(*) from outbox.status_leases") == [(2,)]
    worker.done_all([event.token for event in taken])
    again = []
    wait_until(lambda: again.extend(worker.take(50)) or len(again) == 41, what="the others")
    assert 50 not in {event.id for event in again} and {event.attempt for event in again} == {1}
    worker.done_all([event.token for event in again])
    assert [event.id for event in worker.take(5)] == [50]


def test_a_worker_is_given_what_may_pass_and_then_what_is_due(db, timers):
    worker = over_timers(db, "pass")
    worker.take(1)
    timers(e1=("a", 1.5), e2=("a", -1), e3=(None, 1.5))
    taken = worker.take(5)
    assert [event.id for event in taken] == [2]
    assert worker.take(5) == []
    worker.done(taken[0].token)
    due = []
    wait_until(lambda: due.extend(worker.take(5)) or len(due) == 2, what="the others", interval_s=0.05)
    assert sorted(event.id for event in due) == [1, 3]
    assert worker.done_all([event.token for event in due]) == 2 and db.query("select event_id from outbox.parked") == []


def test_more_than_one_look_can_find_become_due_one_after_the_other(db, timers):
    worker = over_timers(db, "pass")
    worker.take(1)
    db.query("insert into public.timers select n, 'k' || n, now() + interval '1 s' from generate_series(1, 10300) n")
    entries = "select count(*) from outbox.parked where token is null"
    wait_until(lambda: worker.take(1) and db.value(entries), what="the first look", interval_s=0.05)
    assert db.value(entries) < 10000
    wait_until(lambda: worker.take(1) and db.value("select count(*) from outbox.parked") == 10300, what="the next one", interval_s=0.05)


@pytest.mark.parametrize("others", [0, 1200])
@pytest.mark.parametrize("index", ["with an index", "without"])
def test_what_becomes_due_is_what_a_worker_is_given_next_of_its_key(db, timers, index, others):
    """Not at the next look only, of which there are a few a second."""
    if index == "without":
        db.query("drop index public.timers_at_idx")
    worker = over_timers(db, "pass")
    timers(e1=("a", 3600), e2=("a", -1), e3=("a", -1), e4=("a", -1), e5=("a", -1))
    given = []

    def work():
        (event,) = worker.take(1)
        given.append(event.id)
        assert worker.done(event.token)

    work()
    db.query("update public.timers set at = clock_timestamp() where id = 1")
    db.query("insert into public.timers select 100 + n, 'k' || n, clock_timestamp() from generate_series(1, %s) n", (others,))
    for _ in range(4):
        work()
    assert given == [2, 1, 3, 4, 5]


def test_what_becomes_due_while_a_later_one_is_leased_is_next_and_has_none_of_its_failures(db, timers):
    worker = over_timers(db, "pass")
    timers(e1=("a", 3600), e2=("a", -1), e3=("a", -1))
    (event,) = worker.take(1)
    assert event.id == 2 and worker.fail(event.token)
    db.query("update outbox.parked set next_at = clock_timestamp()")
    (event,) = worker.take(1)
    assert (event.id, event.attempt) == (2, 2)
    db.query("update public.timers set at = clock_timestamp() where id = 1")
    assert worker.release(event.token)
    (event,) = worker.take(1)
    assert (event.id, event.attempt) == (1, 1) and worker.done(event.token)
    assert [event.id for event in worker.take(5)] == [2]


def test_a_time_that_is_moved_far_back_counts_in_a_key_that_is_always_busy(db, timers):
    worker = over_timers(db, "pass")
    timers(e1=("a", 3600), **{f"e{n}": ("a", -1) for n in range(2, 22)})
    ids = iter(range(100, 10 ** 6))

    def given():
        timers(**{f"e{next(ids)}": ("a", -1)})
        (event,) = worker.take(1)
        assert worker.done(event.token)
        return event.id

    passed = "select max(low) > 1 from outbox.take_mark"
    wait_until(lambda: given() and db.value(passed), what="the mark to pass the event")
    db.query("update public.timers set at = now() - interval '1 hour' where id = 1")
    wait_until(lambda: given() == 1, what="the event", interval_s=0.01)


def test_what_comes_in_front_of_a_key_that_waits_for_its_time_does_not_wait(db, timers):
    worker = over_timers(db, "hold")
    timers(e2=("a", 3600), e3=("a", -1))
    assert worker.take(5) == [] and db.query(WAITS) == [(1, 1)]
    timers(e1=("a", -1))
    found = []
    wait_until(lambda: found.extend(worker.take(5)) or found, what="the event in front")
    assert [event.id for event in found] == [1] and worker.done(found[0].token)
    assert worker.take(5) == [] and db.query(WAITS) == [(1, 1)]


def test_a_worker_waits_for_no_key_that_is_locked_and_forgets_none(db, timers):
    """As test_what_becomes_due_in_front_of_a_key_that_is_locked..., for take()."""
    worker = over_timers(db, "pass")
    worker.take(1)
    timers(e1=("a", 0.5), e2=("a", -1))
    (event,) = worker.take(5)
    other = lock_entries(db)
    worker.connection.cursor().execute("set lock_timeout = '2s'")
    moved = "select max(moved_at) > (select at + interval '3 s' from public.timers where id = 1) from outbox.take_mark"
    wait_until(lambda: worker.take(5) == [] and db.value(moved), what="looks that begin later", interval_s=0.05)
    other.close()
    wait_until(lambda: worker.take(5) == [] and db.query("select event_id from outbox.parked") == [(1,)], what="the entry to point at it")
    assert event.id == 2 and worker.done(event.token) and [left.id for left in worker.take(5)] == [1]


@pytest.mark.parametrize("heir", ["relay", "worker"])
def test_what_became_due_while_a_later_one_was_delivered_is_next_when_that_fails(db, relay, http, timers, heir):
    """Neither the later one, again, nor its wait."""
    http.respond = lambda request: Reply(action=HANG)
    worker = over_timers(db, "pass")
    assert worker.take(1) == []
    timers(e1=("a", 2.5), e2=("a", -1))
    one = relay((CONFIG + "    retry: {{ base: 1h, max: 1h }}\n").format(dsn=db.dsn, url=http.url, delayed="pass"))
    wait_until(lambda: db.query("select event_id from outbox.parked") == [(1,)], what="the entry for what has become due")
    made = db.value("select updated_at from outbox.parked")
    assert sent(http) == [2] and http.in_flight == 1
    http.release(Reply(500))
    wait_until(lambda: db.query("select event_id from outbox.parked where updated_at > %s", [made]), what="the failure")
    if heir == "relay":
        wait_until(lambda: sent(http) == [2, 1], what="the other one")
        http.release()
        wait_until(lambda: sent(http) == [2, 1, 2], what="the one that failed")
        return
    one.kill()
    # Another call has just looked at all that there is.
    db.query("update outbox.parked set next_at = clock_timestamp(); update public.timers set at = at - interval '1 minute';"
             "update outbox.take_mark set low = 3, next_low = 3, due_to = clock_timestamp(), due_at = now() + interval '1 hour'")
    given = []
    wait_until(lambda: given.extend(worker.take(1)) or given, what="the key to be free")
    assert [(event.id, event.attempt) for event in given] == [(1, 1)]


def test_a_relay_and_workers_agree_on_times(db, relay, http, timers):
    over_timers(db, "pass")
    refused = start(db, relay, http)
    assert refused.wait() == 78 and "another delayed" in refused.process.log_tail()


def test_a_queue_is_told_what_is_wrong_with_its_times(db):
    db.query("create table public.plain (id bigint primary key, at timestamp, day jsonb);"
             f" grant select, delete on public.plain to {OWNER_ROLE}")
    with pytest.raises(psycopg2.errors.DatatypeMismatch, match="no timestamp with time zone"):
        db.query("select outbox.queue_set('plain', 'public.plain', not_before_column => 'at')")
    with pytest.raises(psycopg2.errors.DatatypeMismatch, match="day of public.plain is no time") as refused:
        db.query("select outbox.queue_set('plain', 'public.plain', created_at_column => 'day')")
    assert refused.value.diag.message_hint and db.value("select count(*) from outbox.queue") == 0
    db.query("select outbox.queue_set('plain', 'public.plain', created_at_column => 'at')")
    db.query("create domain public.moment as timestamptz; create domain public.start as public.moment; alter table public.plain add begun public.start")
    db.query("select outbox.queue_set('plain', 'public.plain', created_at_column => 'begun')")


@pytest.mark.parametrize("index, serves", [("(at)", True), ("(at, id) where at is not null", True), ("(at) where k is not null", False),
                                           ("(at) where at is not null and k = 'a'", False), ("(k, at)", False), ("using hash (at)", False)])
def test_an_index_that_leaves_rows_out_finds_nothing_that_becomes_due(db, timers, http, tmp_path, index, serves):
    index = index.replace("at", "\"At\"")
    db.query(f"drop index public.timers_at_idx; alter table public.timers rename at to \"At\"; create index on public.timers {index};"
             f" grant select, delete on public.timers to {OWNER_ROLE}")
    assert db.value("select outbox.has_due_index('public.timers', outbox.attnum_of('public.timers', 'At'))") == serves
    config = tmp_path / "pgcourier.yaml"
    config.write_text(CONFIG.format(dsn=db.dsn, url=http.url, delayed="pass").replace("not_before: at", "not_before: At"))
    done = run_command("check-config", "--database", "-c", str(config))
    assert ("looked for in the whole table" not in done.stdout + done.stderr) == serves


def test_a_name_in_what_a_statement_is_given_stays_as_it_is(db):
    """A condition may have :id, a backslash or & in a text of its own."""
    names = json.dumps({"where": r"e.note <> ':id \\1 &'", "id": "e.no"})
    assert db.value("select outbox.statement_with('select :id::text from t e where (:where)', %s)", (names,)) \
        == r"select e.no::text from t e where (e.note <> ':id \\1 &')"


# ---- history ----

TURBULENCE = """
alter table public.events add not_before timestamptz default
    case when random() < 0.2 then clock_timestamp() + random() * interval '1.5 s' end;
create index on public.events (not_before) where not_before is not null"""


def free_of_delays(db, shop, receipts):
    """Where delayed events let others pass, each of them is in no order with the rest of its key."""
    delayed = {row[0] for row in db.query("select id from public.noted where delayed")}

    def moved(record):
        return record._replace(key=None if record.id in delayed else record.key)

    shop.journal = [moved(event) for event in shop.journal]
    return [moved(receipt) for receipt in receipts]


@pytest.mark.parametrize("delayed", ["hold", "pass"])
def test_two_relays_that_are_killed_lose_nothing_that_is_delayed(db, relay, tmp_path, delayed):
    rng = random.Random(os.environ.get("PGCOURIER_SEED", "1"))
    shop = Shop(db, orders=200)
    db.query(TURBULENCE)
    db.query("create table public.noted (id bigint, delayed boolean); create function public.note() returns trigger language plpgsql as"
             " $$ begin insert into public.noted values (new.id, new.not_before is not null); return null; end $$;"
             " create trigger note after insert on public.events for each row execute function public.note()")
    target = FileTarget(tmp_path / "events.jsonl")
    config = shop.config(target.sink(), keys_per_claim=16, max_events_per_key=4, delayed=delayed, **target.queue)
    config = config.replace("created_at: created_at", "created_at: created_at, not_before: not_before")
    relays = [relay(config) for _ in range(2)]
    faults = []
    for round_number in range(5):
        shop.produce(400, producers=4, seed=round_number)
        goal = shop.settled() + rng.randint(1, 100)
        wait_until(lambda goal=goal: shop.settled() >= goal or shop.left() == 0, 60, "the drain to go on")
        victim = relays.pop(0)
        receipts, at = target.count() or 0, time.monotonic()
        victim.pause()
        wait_until(lambda victim=victim: stands_still(victim.pid), 60, "the relay to stand still")
        faults.append(Fault("SIGKILL", in_flight=128, receipts=receipts, at=at))
        victim.kill()
        relays.append(relay(config))
    wait_until(lambda: shop.left() == 0, 120, "the table to be empty")
    assert [one.stop() for one in relays] == [0, 0]
    receipts = target.receipts()
    shop.check(receipts if delayed == "hold" else free_of_delays(db, shop, receipts), faults)
