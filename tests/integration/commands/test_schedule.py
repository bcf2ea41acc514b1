"""Schedules: outbox.next_cron(), outbox.schedule_set() and the relays that insert what is due; and windows of queues."""

import time
from datetime import timedelta

import psycopg2
import pytest

from tests.support.history import Fault
from tests.support.noted import Noted
from tests.support.postgres import OWNER_ROLE
from tests.support.servers import run_command, wait_until
from tests.support.targets import http_receipts

CONFIG = """
database: "{dsn}"
sinks: {{ hook: {{ type: http, url: "{url}" }} }}
queues: {{ tasks: {{ sink: hook{more} }} }}
"""
BERLIN = "Europe/Berlin"


def runs(db, cron, zone, after, count):
    """The next `count` of them in UTC, without the seconds."""
    found = []
    for _ in range(count):
        after = db.value("select outbox.next_cron(%s, %s, %s)", (cron, zone, after))
        found.append(after)
    return [db.value("select to_char(%s at time zone 'UTC', 'YYYY-MM-DD HH24:MI')", (run,)) for run in found]


@pytest.mark.parametrize("cron, after, expected", [
    ("* * * * *", "2026-01-01 00:00:00Z", ["2026-01-01 00:01", "2026-01-01 00:02"]),
    ("* * * * *", "2026-01-01 00:00:59.9Z", ["2026-01-01 00:01"]),
    ("*/15 * * * *", "2026-01-01 00:20Z", ["2026-01-01 00:30", "2026-01-01 00:45", "2026-01-01 01:00"]),
    ("0,30 6-8 * * *", "2026-01-01 07:10Z", ["2026-01-01 07:30", "2026-01-01 08:00", "2026-01-01 08:30", "2026-01-02 06:00"]),
    ("5-59/20 12 * * *", "2026-01-01 00:00Z", ["2026-01-01 12:05", "2026-01-01 12:25", "2026-01-01 12:45"]),
    ("50/5 12 * * *", "2026-01-01 00:00Z", ["2026-01-01 12:50", "2026-01-01 12:55", "2026-01-02 12:50"]),
    ("0 0 1 jan *", "2026-01-01 00:00Z", ["2027-01-01 00:00"]),
    ("0 9 * * mon-fri", "2026-11-20 10:00Z", ["2026-11-23 09:00"]),  # from a Friday
    ("0 9 * * 6,7", "2026-11-20 10:00Z", ["2026-11-21 09:00", "2026-11-22 09:00", "2026-11-28 09:00"]),
    ("0 9 * * sat-SUN", "2026-11-20 10:00Z", ["2026-11-21 09:00", "2026-11-22 09:00", "2026-11-28 09:00"]),
    ("0 9 * * mon-sun/3", "2026-11-20 10:00Z", ["2026-11-22 09:00", "2026-11-23 09:00", "2026-11-26 09:00", "2026-11-29 09:00"]),
    ("0 9 * * sun-tue", "2026-11-20 10:00Z", ["2026-11-22 09:00", "2026-11-23 09:00", "2026-11-24 09:00", "2026-11-29 09:00"]),
    ("0 9 * * sun-sun", "2026-11-20 10:00Z", ["2026-11-22 09:00", "2026-11-29 09:00"]),
    ("0 9 * * SUN", "2026-11-20 10:00Z", ["2026-11-22 09:00"]),
    ("0 9 * * 0", "2026-11-20 10:00Z", ["2026-11-22 09:00"]),
    ("0 0 13 * fri", "2026-11-12 12:00Z", ["2026-11-13 00:00", "2026-11-20 00:00"]),  # the 13th, or a Friday
    ("0 0 13 * fri", "2026-12-11 12:00Z", ["2026-12-13 00:00", "2026-12-18 00:00"]),
    ("0 0 */2 * mon", "2026-11-01 00:00Z", ["2026-11-09 00:00", "2026-11-23 00:00"]),  # a * is no restriction: both
    ("0 12 29 2 *", "2026-01-01 00:00Z", ["2028-02-29 12:00", "2032-02-29 12:00"]),
    ("0 12 29 2 *", "2096-03-01 00:00Z", ["2104-02-29 12:00"]),
    ("0 0 29 2 */7", "2032-03-01 00:00Z", ["2060-02-29 00:00"]),  # one that is a Sunday
    ("0 0 29 2 */7", "2088-03-01 00:00Z", ["2128-02-29 00:00"]),  # 2100 has none
    ("0 0 30 2 fri", "2026-02-01 00:00Z", ["2026-02-06 00:00"]),
    ("0 0 31 2,3 *", "2026-02-01 00:00Z", ["2026-03-31 00:00"]),
    ("0 0 31 * *", "2026-03-31 00:00Z", ["2026-05-31 00:00"]),
    ("@hourly", "2026-01-01 00:00Z", ["2026-01-01 01:00"]),
    ("@weekly", "2026-11-20 10:00Z", ["2026-11-22 00:00"]),
    (" @Yearly ", "2026-11-20 10:00Z", ["2027-01-01 00:00"]),
])
def test_next_cron_is_the_next_time_that_fits(db, cron, after, expected):
    assert runs(db, cron, "UTC", after, len(expected)) == expected


@pytest.mark.parametrize("cron, after, expected", [
    # 29 March 2026: 02:00 is put forward to 03:00. 25 October: 03:00 is put back to 02:00.
    ("30 2 * * *", "2026-03-28 12:00Z", ["2026-03-29 01:00", "2026-03-30 00:30"]),  # at the jump
    ("0 2,3 * * *", "2026-03-28 12:00Z", ["2026-03-29 01:00", "2026-03-30 00:00"]),  # both are the same moment
    ("30 * * * *", "2026-03-28 23:45Z", ["2026-03-29 00:30", "2026-03-29 01:30"]),  # 01:30, then 03:30
    ("30 2 * * *", "2026-10-24 12:00Z", ["2026-10-25 00:30", "2026-10-26 01:30"]),  # the first 02:30 alone
    ("30 2 * * *", "2026-10-25 00:30Z", ["2026-10-26 01:30"]),
    ("30 * * * *", "2026-10-25 00:00Z", ["2026-10-25 00:30", "2026-10-25 01:30", "2026-10-25 02:30"]),  # 02:30 twice
    ("0 6 * * *", "2026-10-24 03:00Z", ["2026-10-24 04:00", "2026-10-25 05:00"]),
])
def test_next_cron_when_clocks_change(db, cron, after, expected):
    assert runs(db, cron, BERLIN, after, len(expected)) == expected


def test_next_cron_where_midnight_is_jumped_over(db):
    """In Santiago on 6 September 2026 it was 01:00 after 23:59."""
    assert runs(db, "0 0 * * *", "America/Santiago", "2026-09-05 12:00Z", 2) == ["2026-09-06 04:00", "2026-09-07 03:00"]


@pytest.mark.parametrize("cron", ["", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "a * * * *",
                                  "*/0 * * * *", "5-1 * * * *", "* * * foo *", "* * * * mon-", ", * * * *", "0 0 31 2 *", "0 0 31 4,6,9,11 *",
                                  "@never", "-1 * * * *", "0 0 30 feb *", "1;2 * * * *"])
def test_next_cron_refuses_what_never_comes_or_means_nothing(db, cron):
    with pytest.raises(psycopg2.errors.InvalidParameterValue) as refused:
        db.query("select outbox.next_cron(%s)", (cron,))
    assert refused.value.diag.message_hint


@pytest.mark.parametrize("cron, message, hint", [
    ("0 0 30 2 *", '"0 0 30 2 *" never comes true: no month of "2" has a day of the month of "30"', "Give a day that one of the months has, or * as the month."),
    ("0 0 31 4,6,sep */2", 'never comes true: no month of "4,6,sep" has a day of the month of "31"', "Give a day"),
    ("0 22-5 * * *", 'the hour "22-5" in "0 22-5 * * *" runs backwards', "Write 5-22, or two ranges to go round: 22-23,0-5."),
    ("0 0 * nov-feb *", 'the month "nov-feb" in "0 0 * nov-feb *" runs backwards', "Write feb-nov, or two ranges to go round: nov-12,1-feb."),
    ("0 0 * * fri-mon/2", 'the day of the week "fri-mon/2" in', "Write mon-fri, or two ranges to go round: fri-7,0-mon."),
    ("61-5 * * * *", 'the minute "61-5" in "61-5 * * * *" is no value from 0 to 59', "A field is"),
    ("0 0 0 * *", 'the day of the month "0" in "0 0 0 * *" is no value from 1 to 31', "A field is"),
])
def test_next_cron_says_which_field_is_wrong_and_how_to_mend_it(db, cron, message, hint):
    with pytest.raises(psycopg2.errors.InvalidParameterValue) as refused:
        db.query("select outbox.next_cron(%s)", (cron,))
    assert message in refused.value.diag.message_primary and refused.value.diag.message_hint.startswith(hint)


def test_two_ranges_go_round_where_one_cannot(db):
    assert runs(db, "0 0 1 nov-12,1-feb *", "UTC", "2026-02-02 00:00Z", 5) == [f"{month}-01 00:00" for month in
                                                                             ("2026-11", "2026-12", "2027-01", "2027-02", "2027-11")]
    assert runs(db, "0 0 * * fri-7,0-mon", "UTC", "2026-11-20 10:00Z", 4) == [f"2026-11-{day} 00:00" for day in (21, 22, 23, 27)]


# ---- schedules ----

@pytest.fixture
def tasks(db):
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('tasks')")
    return db


def set_schedule(db, name, more):
    return db.value(f"set role {OWNER_ROLE}; select outbox.schedule_set('{name}', 'tasks', {more})")


def overdue(db, name, by):
    db.query(f"update outbox.schedule set next_at = clock_timestamp() - interval '{by}' where name = '{name}'")


def start(db, relay, http, more=""):
    return relay(CONFIG.format(dsn=db.dsn, url=http.url, more=more))


def test_a_schedule_inserts_its_event_with_what_it_was_given(tasks, relay, http):
    one = start(tasks, relay, http)
    set_schedule(tasks, "poll", "every => '1 hour', key => 'k', type => 'poll', payload => '{\"n\": 1}', headers => '{\"x\": \"y\"}'")
    overdue(tasks, "poll", "1 s")
    wait_until(lambda: http.requests, what="the event")
    request = http.requests[0]
    assert request.json() == {"n": 1} and request.headers["x"] == "y" and request.headers["schedule"] == "poll"
    assert tasks.query("select runs, next_at > clock_timestamp() + interval '59 min', last_at < clock_timestamp() from outbox.schedule") == [(1, True, True)]
    assert one.stop() == 0 and len(http.requests) == 1


@pytest.mark.parametrize("missed, by, expected", [("once", "35 s", 1), ("all", "35 s", 4), ("skip", "35 s", 1), ("once", "1 day", 1), ("all", "100 min", 601)])
def test_missed_runs_come_as_they_were_asked_for(tasks, relay, http, missed, by, expected):
    set_schedule(tasks, "s", f"every => '10 s', missed => '{missed}'")
    overdue(tasks, "s", by)
    tasks.query("select outbox.pause('tasks')")
    start(tasks, relay, http)
    wait_until(lambda: tasks.value("select next_at > clock_timestamp() from outbox.schedule"), what="all that is due")
    assert tasks.value("select runs from outbox.schedule") == tasks.value("select count(*) from outbox.events")
    assert expected <= tasks.value("select runs from outbox.schedule") <= expected + 2  # the clock goes on
    assert tasks.value("select count(distinct headers) = count(*) from outbox.events")


def test_a_run_that_is_late_by_more_than_a_minute_is_skipped(tasks):
    set_schedule(tasks, "s", "cron => '0 6 * * *', missed => 'skip'")
    overdue(tasks, "s", "2 min")
    assert tasks.query("select inserted, failed, more from outbox.schedule_run('tasks')") == [(0, None, False)]
    assert tasks.query("select runs, next_at > clock_timestamp() from outbox.schedule") == [(0, True)]


def test_a_run_that_failed_is_tried_again_and_not_skipped(tasks):
    at = tasks.value("select date_trunc('minute', clock_timestamp())")
    set_schedule(tasks, "s", f"cron => '{at:%M %H} * * *', zone => 'UTC', missed => 'skip', key => 'k'")
    tasks.query("update outbox.schedule set next_at = %s", [at])
    tasks.query("alter table outbox.events add constraint no check (false) not valid")
    assert "no" in tasks.value("select failed from outbox.schedule_run('tasks')")
    at -= timedelta(minutes=10)
    tasks.query(f"alter table outbox.events drop constraint no; update outbox.schedule set cron = '{at:%M %H} * * *', next_at = %s, retry_at = clock_timestamp()", [at])
    assert tasks.query("select inserted, failed, more from outbox.schedule_run('tasks')") == [(1, None, False)]
    assert tasks.query("select runs, next_at > clock_timestamp(), retry_at, last_error from outbox.schedule") == [(1, True, None, "")]


def test_two_relays_insert_each_run_once(tasks, relay, http):
    noted = Noted(tasks)
    relays = [start(tasks, relay, http) for _ in range(2)]
    for n in range(3):
        set_schedule(tasks, f"s{n}", f"every => '1 s', missed => 'all', key => 'k{n % 2}'")
    wait_until(lambda: tasks.value("select min(runs) from outbox.schedule") >= 4, what="some runs")
    faults = [Fault("a relay was killed", in_flight=2, receipts=len(http.requests))]
    relays[0].kill()
    wait_until(lambda: tasks.value("select min(runs) from outbox.schedule") >= 7, what="more runs")
    tasks.query("delete from outbox.schedule")
    wait_until(lambda: tasks.value("select count(*) from outbox.events") == 0, what="all to be delivered")
    seen = {(request.headers["schedule"], request.headers["scheduled-at"]) for request in http.requests}
    ids = {request.headers["event-id"] for request in http.requests}
    assert len(seen) == len(ids) >= 21
    assert relays[1].stop() == 0
    noted.check(http_receipts(http), faults)
    for n in range(3):
        times = sorted(at for name, at in seen if name == f"s{n}")
        assert len(times) == len(set(times)) and times == sorted(times)


def test_a_schedule_that_cannot_be_inserted_holds_up_no_other(db, relay, http):
    db.query(f"create table public.jobs (id bigserial primary key, k text); grant select, insert, delete on public.jobs to {OWNER_ROLE};"
             f" grant usage on sequence public.jobs_id_seq to {OWNER_ROLE}; set role {OWNER_ROLE};"
             " select outbox.queue_set('tasks', 'public.jobs', key_column => 'k')")
    set_schedule(db, "bad", "every => '1 hour'")
    set_schedule(db, "good", "every => '1 hour', key => 'k'")
    db.query("alter table public.jobs alter k set not null")
    overdue(db, "bad", "2 s")
    overdue(db, "good", "1 s")
    assert db.query("select inserted, failed from outbox.schedule_run('tasks')") == \
        [(1, 'bad: null value in column "k" of relation "jobs" violates not-null constraint')]
    assert db.query("select name, runs, last_error <> '' from outbox.schedule order by 1") == [("bad", 0, True), ("good", 1, False)]
    assert db.query("select inserted, failed from outbox.schedule_run('tasks')") == [(0, None)], "not before a minute is over"


@pytest.fixture
def producer(tasks):
    """Has published for `reports` and does not commit."""
    connection = tasks.connect(autocommit=False)
    connection.cursor().execute("select outbox.publish('reports', 't', '{}')")
    yield connection
    connection.close()


def test_a_schedule_whose_key_a_producer_has_locked_is_tried_again_soon(tasks, producer):
    set_schedule(tasks, "s", "every => '1 hour', key => 'reports', missed => 'skip'")
    set_schedule(tasks, "t", "every => '1 hour', key => 'others'")
    overdue(tasks, "s", "2 s")
    overdue(tasks, "t", "1 s")
    assert tasks.query("select inserted, failed, more from outbox.schedule_run('tasks')") == [(1, None, False)]
    again = "select runs, last_error, retry_at <= clock_timestamp() + interval '1 second' from outbox.schedule where name = 's'"
    assert tasks.query(again) == [(0, "", True)]
    now = "update outbox.schedule set retry_at = clock_timestamp() where name = 's'"
    tasks.query(now)
    assert tasks.query("select inserted, failed, more from outbox.schedule_run('tasks')") == [(0, None, False)]
    producer.commit()
    tasks.query(now)
    assert tasks.query("select inserted, failed, more from outbox.schedule_run('tasks')") == [(1, None, False)]
    assert tasks.query("select runs, retry_at from outbox.schedule") == [(1, None)] * 2


def test_many_schedules_of_a_locked_key_are_not_all_waited_for(tasks, producer):
    for n in range(20):
        set_schedule(tasks, f"s{n}", "every => '1 hour', key => 'reports'")
    tasks.query("update outbox.schedule set next_at = clock_timestamp() - interval '1 s'")
    tasks.query("set statement_timeout = '12 s'; select outbox.schedule_run('tasks')")
    assert tasks.value("select count(*) from outbox.schedule where retry_at is not null and last_error = ''") == 20


def test_schedules_wait_no_longer_than_the_caller_would(tasks, producer):
    """Leases of his may run out meanwhile."""
    for n in range(20):
        set_schedule(tasks, f"s{n}", "every => '1 hour', key => 'reports'")
    tasks.query("update outbox.schedule set next_at = clock_timestamp() - interval '1 s'")
    before = time.monotonic()
    assert tasks.query("set lock_timeout = '100ms'; select inserted, failed, more from outbox.schedule_run('tasks')") == [(0, None, True)]
    assert time.monotonic() - before < 1.0
    assert 0 < tasks.value("select count(*) from outbox.schedule where retry_at is not null") < 10
    tasks.query("insert into outbox.served (queue) values ('idle')")
    assert tasks.query("set lock_timeout = '7s'; begin; select outbox.schedule_run('idle'); show lock_timeout") == [("7s",)]


@pytest.mark.parametrize("count, more", [(20, [True, False]), (45, [True, True, False])])
def test_schedules_beyond_those_of_one_call_are_still_due(tasks, count, more):
    for n in range(count):
        set_schedule(tasks, f"s{n}", "every => '1 hour'")
    tasks.query("update outbox.schedule set next_at = clock_timestamp() - interval '1 s'")
    assert [tasks.query("select inserted, more from outbox.schedule_run('tasks')")[0] for _ in more] == \
        [(min(20, count - 20 * n), said) for n, said in enumerate(more)]


def test_schedules_that_fail_keep_none_of_those_after_them_waiting(tasks):
    for n in range(25):
        set_schedule(tasks, f"s{n}", "every => '1 hour'")
    tasks.query("update outbox.schedule set next_at = clock_timestamp() - interval '1 s', headers = '[]' where name <> 's24'")
    tasks.query("update outbox.schedule set next_at = clock_timestamp() - interval '0.1 s' where name = 's24'")
    tasks.query("alter table outbox.events add check (jsonb_typeof(headers) = 'object' and headers ->> 'schedule' = 's24')")
    assert [tasks.query("select inserted, more from outbox.schedule_run('tasks')")[0] for _ in range(3)] == [(0, True), (1, False), (0, False)]


@pytest.mark.parametrize("arguments, error", [
    ("'x', 'nobody', every => '1 h'", psycopg2.errors.UndefinedObject), ("'x', 'tasks'", psycopg2.errors.InvalidParameterValue),
    ("'x', 'tasks', every => '1 h', cron => '@daily'", psycopg2.errors.InvalidParameterValue),
    ("'x', 'tasks', every => '1 ms'", psycopg2.errors.InvalidParameterValue), ("'x', 'tasks', every => '1 month'", psycopg2.errors.InvalidParameterValue),
    ("'x', 'tasks', cron => 'x'", psycopg2.errors.InvalidParameterValue), ("'', 'tasks', every => '1 h'", psycopg2.errors.InvalidParameterValue),
    ("'x', 'tasks', every => '1 h', missed => 'never'", psycopg2.errors.InvalidParameterValue),
    ("'x', 'tasks', every => '1 h', headers => '[1]'", psycopg2.errors.InvalidParameterValue),
    ("'x', 'tasks', every => '1 h', zone => 'Mars'", psycopg2.errors.InvalidParameterValue),
    ("'x', 'tasks', every => '1 h', starts => 'infinity'", psycopg2.errors.InvalidParameterValue)])
def test_a_schedule_that_cannot_be_is_refused_and_nothing_changed(tasks, arguments, error):
    with pytest.raises(error) as refused:
        tasks.query(f"set role {OWNER_ROLE}; select outbox.schedule_set({arguments})")
    assert refused.value.diag.message_hint and tasks.query("select * from outbox.schedule") == []


@pytest.mark.parametrize("arguments, error", [("key => 'abc'", psycopg2.errors.InvalidTextRepresentation),
                                              ("key => '7', payload => '{}'", psycopg2.errors.InvalidTextRepresentation),
                                              ("payload => '5'", psycopg2.errors.NotNullViolation), ("key => '7', payload => '5'", None)])
def test_a_schedule_whose_event_the_table_does_not_take_is_refused(db, arguments, error):
    db.query("create table public.jobs (id bigserial primary key, k bigint not null, n int);"
             f" grant select, insert, delete on public.jobs to {OWNER_ROLE}; grant usage on sequence public.jobs_id_seq to {OWNER_ROLE};"
             f" set role {OWNER_ROLE}; select outbox.queue_set('tasks', 'public.jobs', key_column => 'k', payload_column => 'n')")
    if error:
        with pytest.raises(error) as refused:
            set_schedule(db, "s", f"every => '1 hour', {arguments}")
        assert "an event of s does not go into public.jobs: " in refused.value.diag.message_primary and refused.value.diag.message_hint
    else:
        set_schedule(db, "s", f"every => '1 hour', {arguments}")
    assert db.value("select count(*) from outbox.schedule") == (0 if error else 1) and db.value("select count(*) from public.jobs") == 0


def jobs(db, columns):
    db.query(f"create table public.jobs (id bigserial primary key, {columns}); grant select, insert, delete on public.jobs to {OWNER_ROLE};"
             f" grant usage on sequence public.jobs_id_seq to {OWNER_ROLE};"
             f" set role {OWNER_ROLE}; select outbox.queue_set('tasks', 'public.jobs', key_column => 'k')")


def test_a_schedule_whose_event_breaks_a_deferred_constraint_is_refused_and_holds_up_no_other(db):
    db.query("create table public.orders (id bigint primary key); insert into public.orders values (1), (2)")
    jobs(db, "k bigint references public.orders deferrable initially deferred")
    with pytest.raises(psycopg2.errors.ForeignKeyViolation, match="an event of s does not go into public.jobs"):
        set_schedule(db, "s", "every => '1 hour', key => '7'")
    for name in ("a", "b"):
        set_schedule(db, name, f"every => '1 hour', key => '{1 + (name == 'b')}'")
    db.query("delete from public.orders where id = 1; update outbox.schedule set next_at = clock_timestamp() - interval '1 s'")
    ((inserted, failed, more),) = db.query("select * from outbox.schedule_run('tasks')")
    assert (inserted, more) == (1, False) and failed.startswith("a: ") and "foreign key" in failed
    assert db.query("select k from public.jobs") == [(2,)]
    assert db.query("select name, last_error <> '' from outbox.schedule order by name") == [("a", True), ("b", False)]


def test_a_schedule_is_set_while_its_last_event_waits_in_a_table_that_takes_one_of_a_key(db):
    jobs(db, "k bigint unique")
    db.query("insert into public.jobs (k) values (7)")
    set_schedule(db, "s", "every => '1 hour', key => '7'")
    assert db.value("select count(*) from outbox.schedule") == 1 and db.value("select count(*) from public.jobs") == 1


def test_a_schedule_that_a_superuser_sets_has_the_rights_of_the_owner(db):
    db.query("create table public.jobs (id bigserial primary key, k bigint);"
             f" grant select, delete on public.jobs to {OWNER_ROLE}; select outbox.queue_set('tasks', 'public.jobs', key_column => 'k')")
    with pytest.raises(psycopg2.errors.InsufficientPrivilege) as refused:
        db.query("select outbox.schedule_set('s', 'tasks', every => '1 hour')")
    assert refused.value.diag.message_hint == f"grant insert on public.jobs to {OWNER_ROLE};" and db.query("select * from outbox.schedule") == []


# ---- windows ----

def window(db, before, after):
    """Around now, in UTC: from so many minutes before to so many after."""
    return db.value("select to_char(now() at time zone 'UTC' - %s * interval '1 min', 'HH24:MI') || '-' ||"
                    " to_char(now() at time zone 'UTC' + %s * interval '1 min', 'HH24:MI')", (before, after))


@pytest.mark.parametrize("clock, times, open_", [
    ("2026-03-10 12:00Z", ("08:00-18:00", "UTC"), 1), ("2026-03-10 08:00Z", ("08:00-18:00", "UTC"), 1),
    ("2026-03-10 18:00Z", ("08:00-18:00", "UTC"), 0), ("2026-03-10 23:30Z", ("23:00-06:00", "UTC"), 1),
    ("2026-03-10 03:30Z", ("23:00-06:00", "UTC"), 1), ("2026-03-10 12:00Z", ("23:00-06:00", "UTC"), 0),
    ("2026-03-10 23:59Z", ("18:00-24:00", "UTC"), 1), ("2026-03-10 17:30Z", ("18:00-24:00", BERLIN), 1),
    ("2026-03-29 00:59Z", ("02:00-03:00", BERLIN), 0), ("2026-03-29 01:00Z", ("02:00-03:00", BERLIN), 0),  # there is none that night
    ("2026-10-25 00:30Z", ("02:00-03:00", BERLIN), 1), ("2026-10-25 01:30Z", ("02:00-03:00", BERLIN), 1),  # it lasts two hours
])
def test_a_window_is_open_by_the_clock_of_its_zone(db, clock, times, open_):
    with open("sql/upkeep/window_look.sql") as file:
        sql = "".join(line for line in file if not line.startswith("--")).replace("pg_catalog.statement_timestamp()", f"'{clock}'::timestamptz")
    for number, value in enumerate(times, 1):
        sql = sql.replace(f"${number}", f"'{value}'")
    assert db.value(sql) == open_


def test_a_queue_claims_nothing_outside_its_window(db, relay, http):
    db.query("select outbox.publish('a', 't', '1')")
    shut = start(db, relay, http, f', window: "{window(db, 600, -300)}"')
    wait_until(lambda: shut.logged("upkeep|relay.start"), what="it to begin")
    time.sleep(1)
    assert http.requests == [] and shut.stop() == 0
    assert shut.logged("queue.stats.* claims=0 ") and shut.logged("queue.stats.*window_closed=1")
    one = start(db, relay, http, f', window: "{window(db, 300, 600)}"')
    wait_until(lambda: len(http.requests) == 1, what="the event")
    assert one.stop() == 0 and one.logged("queue.opened")


@pytest.mark.parametrize("others", ["", """  others: { sink: web, where: "type <> 't'" }"""], ids=["alone", "beside_an_empty_queue"])
def test_until_empty_looks_at_the_window_before_it_ends(db, relay, http, others):
    db.query("select outbox.publish('a', 't', n::text::jsonb) from generate_series(1, 3) n")
    one = relay(f"""
database: "{db.dsn}"
sinks: {{ web: {{ type: http, url: "{http.url}" }} }}
queues:
  t: {{ sink: web, where: "type = 't'", window: "{window(db, 300, 300)}" }}
{others}
""", until_empty=True)
    assert one.wait() == 0 and [request.json() for request in http.requests] == [1, 2, 3]


def test_until_empty_ends_outside_of_the_window(db, relay, http):
    db.query("select outbox.publish('a', 't', '1')")
    one = relay(CONFIG.format(dsn=db.dsn, url=http.url, more=f', window: "{window(db, 600, -300)}"'), until_empty=True)
    assert one.wait() == 0 and http.requests == [] and one.logged("queue.closed")


def test_status_says_that_a_queue_is_outside_its_window(db, tmp_path):
    def status(*options, **settings):
        more = "".join(f', {name}: "{value}"' for name, value in settings.items())
        path = tmp_path / "pgcourier.yaml"
        path.write_text(CONFIG.format(dsn=db.dsn, url="http://127.0.0.1:1", more=more))
        return run_command("status", *options, "-c", str(path))

    closed = window(db, 600, -300)
    assert f"closed outside of {closed}" in status(window=closed).stdout
    opened = status("--json", window=window(db, 300, 600))
    assert '"window_closed":false' in opened.stdout.replace(" ", ""), opened.stdout
    wrong = status(window=closed, window_zone="Mars")
    assert wrong.returncode == 64 and "Mars" in wrong.stderr and wrong.stderr.count("\n") == 1


def test_a_zone_that_there_is_not_is_named(db, relay, http):
    one = start(db, relay, http, ', window: "01:00-02:00", window_zone: Mars')
    assert one.wait() == 78 and 'yaml:4:11: window_zone: time zone "Mars" not recognized' in one.process.log_tail()
    assert "select name from pg_timezone_names;" in one.process.log_tail()


# ---- the command ----

def test_a_schedule_that_is_not_there_is_refused_with_those_that_are(tasks):
    drop = f"set role {OWNER_ROLE}; select outbox.schedule_drop(%s)"
    for name, hint in (("poll", "There is none."), (None, "There is none."), ("pol", "There are: poll, report.")):
        if name == "pol":
            for there in ("report", "poll"):
                set_schedule(tasks, there, "every => '1 hour'")
        with pytest.raises(psycopg2.errors.UndefinedObject, match="schedule_drop: there is no schedule") as refused:
            tasks.query(drop, (name,))
        assert refused.value.diag.message_hint == hint
    tasks.query(drop, ("poll",))
    assert tasks.query("select name from outbox.schedule") == [("report",)]


def test_a_queue_that_is_known_no_more_keeps_its_schedules_and_says_so(tasks):
    set_schedule(tasks, "poll", "every => '1 hour'")
    tasks.query("delete from outbox.queue")  # by hand: queue_drop() would refuse it
    run = "select inserted, failed, more from outbox.schedule_run('tasks')"
    assert tasks.query(run) == [(0, None, False)], "it is not due"
    tasks.query("update outbox.schedule set next_at = clock_timestamp() - interval '1 s'")
    assert tasks.query(run) == [(0, "poll: there is no queue 'tasks' any more: make it known by outbox.queue_set('tasks'),"
                                 " or drop the schedule by outbox.schedule_drop('poll')", False)]


def schedule(db, *arguments):
    return run_command("schedule", *arguments, "-d", db.owner_dsn)


def test_the_command_sets_lists_and_drops(tasks):
    assert schedule(tasks, "list").stdout == ""
    done = schedule(tasks, "set", "report", "-q", "tasks", "--cron", "0 6 * * *", "--zone", BERLIN, "--type", "report", "--missed", "skip")
    assert done.returncode == 0 and done.stdout.startswith("report runs next at "), done.stderr
    done = schedule(tasks, "set", "poll", "-q", "tasks", "--every", "5 minutes", "-k", "k", "--payload", "{}")
    assert done.returncode == 0, done.stderr
    lines = schedule(tasks, "list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["schedule", "poll", "report"] and "0 6 * * * Europe/Berlin" in lines[2]
    assert schedule(tasks, "drop", "poll").stdout == "poll is no more\n"
    done = schedule(tasks, "drop", "poll")
    assert done.returncode == 64 and "no schedule" in done.stderr


def test_the_command_keeps_to_the_queue_that_it_is_given(tasks):
    for name in "mails", "idle":
        tasks.query(f"create table public.{name} (id bigserial primary key, payload jsonb); grant select, insert, delete on public.{name} to {OWNER_ROLE};"
                    f" grant usage on sequence public.{name}_id_seq to {OWNER_ROLE};"
                    f" set role {OWNER_ROLE}; select outbox.queue_set('{name}', 'public.{name}')")
    for name, queue in [("report", "tasks"), ("poll", "tasks"), ("digest", "mails")]:
        assert schedule(tasks, "set", name, "-q", queue, "--every", "1 day").returncode == 0
    lines = schedule(tasks, "list", "--queue", "tasks").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["schedule", "poll", "report"]
    assert len(schedule(tasks, "list").stdout.splitlines()) == 4
    assert schedule(tasks, "list", "--queue", "idle").stdout == ""
    done = schedule(tasks, "drop", "poll", "--queue", "mails")
    assert (done.returncode, done.stderr) == (64, 'pgcourier: there is no schedule "poll" of queue mails; see `pgcourier schedule list`\n')
    assert schedule(tasks, "drop", "poll", "--queue", "tasks").stdout == "poll is no more\n"
    assert [row[0] for row in tasks.query("select name from outbox.schedule order by 1")] == ["digest", "report"]
    done = schedule(tasks, "list", "--queue", "mials")
    assert (done.returncode, done.stderr) == (64, 'pgcourier: there is no queue "mials"; did you mean "mails"? (there are: idle, mails, tasks)\n')


def test_the_command_says_what_is_wrong(tasks):
    done = schedule(tasks, "set", "x", "-q", "tasks", "--cron", "x")
    assert done.returncode == 64 and 'schedule_set: "x" has 1 fields' in done.stderr and done.stderr.count("\n") == 1
    done = schedule(tasks, "set", "x", "-q", "nope", "--every", "1 hour")
    assert (done.returncode, done.stderr) == (64, "pgcourier: schedule_set: there is no queue 'nope'; Make it known: select outbox.queue_set('nope');\n")
    for arguments, text in [
            (["--every", "often"], '--every "often" is no interval: write one as PostgreSQL reads intervals, like "5 minutes"\n'),
            (["--every", "1 hour", "--payload", "{bad"], '--payload "{bad" is no JSON: write a JSON value, like {"n": 1} (PostgreSQL: ')]:
        done = schedule(tasks, "set", "x", "-q", "tasks", *arguments)
        assert done.returncode == 64 and done.stderr.startswith(f"pgcourier: schedule: {text}") and done.stderr.count("\n") == 1, done
    assert tasks.value("select count(*) from outbox.schedule") == 0
    assert schedule(tasks, "set").returncode == 64 and schedule(tasks, "fly").returncode == 64
    done = run_command("schedule", "drop", "x", "-d", tasks.dsn)
    assert done.returncode == 77 and "permission denied" in done.stderr and done.stderr.count("\n") == 1
