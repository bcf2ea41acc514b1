"""The views that say how queues stand: what they say, to whom, and that what is large is estimated and marked so."""

from datetime import timedelta

import psycopg2
import pytest

from tests.support.postgres import OWNER_ROLE, RELAY_ROLE
from tests.support.servers import Reply, wait_until
from tests.support.workers import Worker

VIEWS = ["overview", "failures", "stuck", "by_hour", "workers"]

CONFIG = """
database: "{dsn}"
sinks: {{ web: {{ type: http, url: "{url}" }}, none: {{ type: discard }} }}
queues: {{ tasks: {{ {more} }} }}
"""


@pytest.fixture
def tasks(db):
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('tasks', max_attempts => 3, retry_base => '1 hour', retry_max => '2 hours')")


@pytest.fixture
def watch(db, pg):
    """watch("overview") -> its rows as dictionaries, as a member of outbox_monitor sees them."""
    pg.query("do $$ begin create role dashboard login; exception when duplicate_object then null; end $$;"
             "grant outbox_monitor to dashboard")

    def read(view):
        connection = db.connect(user="dashboard")
        with connection.cursor() as cursor:
            cursor.execute(f"select * from outbox.{view}")
            found = [dict(zip([column.name for column in cursor.description], row)) for row in cursor.fetchall()]
        connection.close()
        return found

    return read


def add(db, *keys):
    return [db.value("insert into outbox.events (aggregateid, type) values (%s, 'task') returning id", (key,)) for key in keys]


def bury(db, reason, count=1, ago="1 minute", queue="tasks"):
    db.query("insert into outbox.dead (queue, event_id, reason, attempts, source_table, original, died_at)"
             " select %s, n, %s, 3, 'outbox.events', '{}', now() - %s::interval from generate_series(1, %s) n", (queue, reason, ago, count))


def park(db, key, next_at, error="", token=None, queue="tasks"):
    db.query("insert into outbox.parked (queue, key, event_id, attempts, next_at, last_error, token, worker, taken_id, taken_at)"
             " values (%s, %s, 7, 1, case %s when 'infinity' then 'infinity' else now() + nullif(%s, 'infinity')::interval end, %s, %s,"
             " 'w', 7, now() - interval '1 hour')",
             (queue, key, next_at, next_at, error, token))


def test_a_queue_is_summed_up_in_a_line(db, tasks, watch):
    add(db, "a", "b", "c", "d", None, "e")
    db.query("update outbox.events set created_at = now() - id * interval '1 hour'")
    one = Worker(db, "tasks")
    taken = {event.key: event for event in one.take(4)}
    one.fail(taken["a"].token, "no")
    one.fail(taken["b"].token, "no", fatal=True)
    one.close()
    db.query("update outbox.parked set next_at = 'infinity' where key = 'a'; select outbox.pause('tasks', 'e'), outbox.pause('tasks')")
    park(db, "later", "1 hour")
    db.query("update outbox.parked set attempts = 0 where key = 'later'")
    bury(db, "no", 2)
    (line,) = watch("overview")
    age, since = line.pop("oldest_age"), line.pop("paused_since")
    assert line == {"queue": "tasks", "waiting": 5, "running": 2, "parked": 0, "delayed": 1, "closed": 1, "paused": 1, "dead": 3,
                    "per_second": None, "estimated": [], "replay": None}
    assert timedelta(hours=3) <= age < timedelta(hours=3, minutes=5), "the closed key's event does not count"
    assert since is not None


def test_a_queue_that_only_a_relay_knows_has_what_pgcourier_keeps_of_it(db, watch):
    park(db, "a", "1 hour", "no", queue="orders")
    bury(db, "no", queue="letters")
    letters, orders = watch("overview")
    assert (letters["queue"], letters["waiting"], letters["running"], letters["dead"]) == ("letters", None, None, 1)
    assert (orders["queue"], orders["waiting"], orders["parked"], orders["dead"]) == ("orders", None, 1, 0)


def test_a_queue_that_a_relay_serves_has_a_line_though_nothing_has_failed(db, relay, watch):
    assert relay(CONFIG.format(dsn=db.dsn, url="http://127.0.0.1:1/", more="sink: none"), until_empty=True).wait() == 0
    (line,) = watch("overview")
    assert (line["queue"], line["waiting"], line["oldest_age"], line["parked"], line["dead"]) == ("tasks", 0, None, 0, 0)
    add(db, "a", "b")
    db.query("update outbox.events set created_at = now() - interval '1 hour' where aggregateid = 'b'; update outbox.events set created_at ="
             " now() - interval '3 hours' where aggregateid = 'a'")
    park(db, "a", "infinity", "no")
    (line,) = watch("overview")
    assert line["waiting"] == 2 and timedelta(hours=1) <= line["oldest_age"] < timedelta(hours=1, minutes=5) and line["running"] == 0


@pytest.mark.parametrize("queue, waiting", [("", 1), ("where: \"k = 'b'\"", None)], ids=["all rows", "some rows"])
def test_a_table_of_ones_own_that_relays_serve_is_counted_unless_they_alone_know_which_rows(db, relay, watch, queue, waiting):
    db.query(f"create table public.t (id bigserial primary key, k text); grant select on public.t to {OWNER_ROLE}")
    db.let_relay_in("public.t")
    more = ", ".join(filter(None, ["table: public.t, columns: { key: k }, sink: none", queue]))
    assert relay(CONFIG.format(dsn=db.dsn, url="http://127.0.0.1:1/", more=more), until_empty=True).wait() == 0
    db.query("insert into public.t (k) values ('a')")
    (line,) = watch("overview")
    assert (line["queue"], line["waiting"], line["running"]) == ("tasks", waiting, 0)
    db.query(f"revoke select on public.t from {OWNER_ROLE}")
    (line,) = watch("overview")
    assert (line["queue"], line["waiting"], line["running"]) == ("tasks", None, 0), "what may not be read hides no other"


def test_ten_thousand_are_counted_and_more_are_estimated(db, tasks, watch):
    db.query("insert into outbox.events (aggregateid) select n from generate_series(1, 10000) n; analyze outbox.events")
    (line,) = watch("overview")
    assert (line["waiting"], line["estimated"]) == (10000, [])
    db.query("insert into outbox.events (aggregateid) select n from generate_series(1, 30000) n")
    bury(db, "no", 20000)
    db.query("analyze outbox.events, outbox.dead")
    (line,) = watch("overview")
    assert line["estimated"] == ["waiting", "dead"]
    assert 36_000 < line["waiting"] < 44_000 and 18_000 < line["dead"] < 22_000


def test_an_age_that_many_stand_still_in_front_of_has_a_bound(db, tasks, watch):
    db.query("insert into outbox.events (aggregateid) select 'closed' from generate_series(1, 10000); insert into outbox.events (aggregateid) values ('b')")
    db.query("update outbox.events set created_at = now() - (10001 - id) * interval '1 minute' - interval '1 hour'")
    park(db, "closed", "infinity", "no")
    (line,) = watch("overview")
    assert timedelta(hours=1, minutes=1) <= line["oldest_age"] < timedelta(hours=1, minutes=2) and "oldest_age" in line["estimated"]
    db.query("delete from outbox.events where id = 1")
    (line,) = watch("overview")
    assert timedelta(hours=1) <= line["oldest_age"] < timedelta(hours=1, minutes=1) and "oldest_age" not in line["estimated"]


def test_of_many_keys_none_that_is_delayed_or_closed_is_none(db, watch):
    db.query("insert into outbox.parked (queue, key, event_id, attempts, next_at, last_error)"
             " select q, 'k' || n, n, case q when 'failed' then 1 else 0 end, now() + interval '1 day', case q when 'failed' then 'no' else '' end"
             " from (values ('failed'), ('waits')) v (q), generate_series(1, 30000) n; analyze outbox.parked")
    failed, waits = watch("overview")
    assert (failed["delayed"], failed["closed"]) == (0, 0) and 24_000 < failed["parked"] < 36_000
    assert (waits["parked"], waits["closed"]) == (0, 0) and 24_000 < waits["delayed"] < 36_000


def test_a_replay_that_has_stopped_has_a_line_beside_its_queue(db, tasks, watch):
    db.query(f"set role {OWNER_ROLE}; create table outbox.replay_18 (id bigint primary key); insert into outbox.replay_18 values (1), (2), (3);"
             "insert into outbox.replay (replay_id, queue, source, events) overriding system value values (17, 'tasks', 'dead', 1),"
             " (18, 'tasks', 'archive', 9); update outbox.replay set ended_at = now() where replay_id = 17")
    park(db, "a", "infinity", "no", queue="tasks (replay 18)")
    queue, replay = watch("overview")
    assert (queue["queue"], queue["replay"], queue["waiting"], queue["closed"]) == ("tasks", None, 0, 0)
    assert (replay["queue"], replay["replay"], replay["waiting"], replay["closed"], replay["running"]) == ("tasks", 18, 3, 1, None)
    db.query("delete from outbox.parked")
    assert [line["replay"] for line in watch("overview")] == [None, 18], "also when none of its keys waits"


def test_a_queue_whose_table_is_gone_and_one_without_an_age_hide_no_other(db, tasks, watch):
    db.query(f"create table public.gone (id bigserial primary key); grant select, delete on public.gone to {OWNER_ROLE};"
             f" set role {OWNER_ROLE}; select outbox.queue_set('gone', 'public.gone'); reset role; drop table public.gone")
    add(db, "a")
    db.query("update outbox.events set created_at = 'infinity'")
    gone, line = watch("overview")
    assert (gone["queue"], gone["waiting"]) == ("gone", None)
    assert (line["queue"], line["waiting"], line["oldest_age"]) == ("tasks", 1, None)


@pytest.mark.parametrize("change", ["drop column k", "drop column at", "alter k type jsonb using null", "alter at type text using 'x'"])
def test_a_queue_whose_columns_are_others_hides_none(db, tasks, watch, change):
    db.query("create table public.jobs (id bigserial primary key, k text, at timestamptz default now()); insert into public.jobs default values;"
             f" grant select, delete on public.jobs to {OWNER_ROLE}; set role {OWNER_ROLE};"
             " select outbox.queue_set('jobs', 'public.jobs', key_column => 'k', created_at_column => 'at', condition => 'at is not null')")
    db.query(f"reset role; alter table public.jobs {change}")
    add(db, "a")
    assert [(line["queue"], line["waiting"]) for line in watch("overview")] == [("jobs", 1 if "jsonb" in change else None), ("tasks", 1)]


def test_a_table_that_vacuum_has_not_seen_for_long_is_not_walked_through(db, tasks, watch):
    db.query("alter table outbox.events set (autovacuum_enabled = off)")
    db.query("insert into outbox.events (aggregateid) select n from generate_series(1, 110000) n")
    db.query("delete from outbox.events where id <= 109995")
    wait_until(lambda: watch("overview")[0]["estimated"] == ["waiting"], what="the server to count what is dead")
    (line,) = watch("overview")
    assert line["waiting"] == 5 and line["oldest_age"] is None
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('tasks', condition => 'aggregateid is not null')")
    assert watch("overview")[0]["estimated"] == ["waiting"]


def test_the_rate_is_that_of_the_last_minute(db, watch):
    db.query("insert into outbox.archive (queue, event_id, original, archived_at)"
             " select 'orders', n, '{}', clock_timestamp() - interval '5 ms' * n from generate_series(1, 12000) n")
    (line,) = watch("overview") or [{"per_second": 0}]
    db.query("select outbox.archive_expire('orders', null, is_new => true)")
    (line,) = watch("overview")
    assert 120 < line["per_second"] <= 200


def test_failures_are_grouped_by_their_error(db, tasks, watch):
    bury(db, "timeout", 3, "2 hours")
    bury(db, "timeout", 2, "1 hour")
    bury(db, "refused", 1)
    park(db, "a", "1 hour", "timeout")
    park(db, "b", "infinity", "full")
    park(db, "c", "1 hour")  # it has not failed
    found = {line["error"]: line for line in watch("failures")}
    assert list(found) == ["timeout", "full", "refused"], "most often first"
    counts = {error: (line["queue"], line["dead"], line["waiting"], line["estimated"]) for error, line in found.items()}
    assert counts == {"timeout": ("tasks", 5, 1, False), "full": ("tasks", 0, 1, False), "refused": ("tasks", 1, 0, False)}
    ages = db.value("select now()") - found["timeout"]["first_at"], db.value("select now()") - found["timeout"]["last_at"]
    assert timedelta(hours=2) <= ages[0] < timedelta(hours=2, minutes=5) and ages[1] < timedelta(minutes=5)


def test_many_failures_are_sampled(db, tasks, watch):
    for reason, count in [("often", 30000), ("seldom", 10000)]:
        bury(db, reason, count)
    often, seldom = watch("failures")
    assert (often["error"], often["estimated"], seldom["error"], seldom["estimated"]) == ("often", True, "seldom", True)
    assert 20_000 < often["dead"] < 40_000 and 5_000 < seldom["dead"] < 20_000


def test_what_is_stuck_says_why(db, tasks, watch):
    park(db, "closed", "infinity", "no")
    park(db, "paused", "infinity")
    db.query("update outbox.parked set resume_at = now() where key = 'paused'")
    park(db, "waits", "1 hour", "no")
    park(db, "just due", "-1 second", "no")
    park(db, "overdue", "-1 hour", "no")
    park(db, "hung", "-1 second", token="00000000-0000-0000-0000-000000000001")
    park(db, "works", "1 hour", token="00000000-0000-0000-0000-000000000002")
    found = {line["key"]: (line["queue"], line["what"], line["event_id"], line["worker"], line["error"]) for line in watch("stuck")}
    assert found == {"closed": ("tasks", "closed", 7, None, "no"), "overdue": ("tasks", "retry overdue", 7, None, "no"),
                     "hung": ("tasks", "lease over", 7, "w", "")}


def test_the_hours_have_what_was_delivered_and_what_failed(db, watch, relay, http):
    add(db, *"abcd")
    db.query("update outbox.events set created_at = case id when 4 then 'infinity' else now() - interval '2 hours' end")
    http.rule(lambda request: request.headers["event-key"] == "c", Reply(400))
    one = relay(CONFIG.format(dsn=db.dsn, url=http.url, more="sink: web, after: archive"), until_empty=True)
    assert one.wait() == 0
    bury(db, "no", 2, "3 hours")
    bury(db, "no", 2, "10 days")
    bury(db, "no", 2, "3 hours")  # takes away what the statement before has noted
    assert db.value("select sum(events) from outbox.died") == 5
    db.query("delete from outbox.dead where died_at < now() - interval '2 hours'")
    before, now = watch("by_hour")
    assert (before["delivered"], before["failed"], before["average_duration"], before["estimated"]) == (0, 4, None, False)
    assert (now["queue"], now["delivered"], now["failed"], now["estimated"]) == ("tasks", 3, 1, False)
    for name in ("average_duration", "p99_duration"):
        assert timedelta(hours=2) <= now[name] < timedelta(hours=2, minutes=5)


def test_an_hour_counts_each_time_that_an_event_was_given_up(db, watch):
    """Also when its dead letter was retried, dropped or purged since."""
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('tasks', max_attempts => 1)")
    add(db, "a", "b")
    worker = Worker(db, "tasks")
    for _ in range(3):
        assert [worker.fail(event.token, "no") for event in worker.take(2)] == [True, True]
        db.query("with gone as (delete from outbox.dead returning *)"
                 " insert into outbox.events (id, aggregateid, type) overriding system value select event_id, key, 'task' from gone")
    worker.close()
    assert sum(line["failed"] for line in watch("by_hour")) == 6
    assert not any(line["estimated"] for line in watch("by_hour"))


def test_the_hours_of_a_large_archive_are_sampled(db, watch):
    db.query("insert into outbox.archive (queue, event_id, original, archived_at, created_at)"
             " select 'tasks', n, '{}', at, at - interval '1 ms' * (n % 100) from (select n, now() - interval '10 ms' * n as at"
             " from generate_series(1, 100000) n) x")
    found = watch("by_hour")
    assert all(line["estimated"] for line in found) and 80_000 < sum(line["delivered"] for line in found) < 120_000
    assert all(timedelta(milliseconds=90) <= line["p99_duration"] < timedelta(milliseconds=100) for line in found[-1:])


def test_an_archived_event_says_when_it_was_settled_and_not_when_it_was_claimed(db, relay, http):
    add(db, "a")
    http.respond = lambda request: Reply(delay_s=1)
    assert relay(CONFIG.format(dsn=db.dsn, url=http.url, more="sink: web, after: archive"), until_empty=True).wait() == 0
    assert db.value("select archived_at - created_at from outbox.archive") >= timedelta(seconds=1)


def test_workers_and_relays_are_seen_with_what_they_have(db, tasks, watch, relay, http):
    ids = add(db, "a", "b", "c")
    worker = Worker(db, "tasks", "host-1")
    worker.take(1)
    http.respond = lambda request: Reply(action="hang")
    one = relay(CONFIG.format(dsn=db.dsn, url=http.url, more="sink: web"))
    wait_until(lambda: len(http.requests) == 2, what="the relay to have the others")
    (lease,) = [line for line in watch("workers") if not line["pid"]]
    assert (lease["queue"], lease["worker"], lease["key"], lease["event_id"], lease["keys"]) == ("tasks", "host-1", "a", ids[0], 1)
    assert lease["since"] < lease["expires_at"]
    sessions = [line for line in watch("workers") if line["pid"]]
    assert {(line["queue"], line["worker"]) for line in sessions} == {("tasks", "pgcourier")}
    assert sum(line["keys"] for line in sessions) == 2 and watch("overview")[0]["running"] == 3
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_drop('tasks')")
    assert watch("overview")[0]["running"] == 3, "a relay has noted whose locks these are"
    assert [line["queue"] for line in watch("workers") if line["pid"]] == ["tasks"] * len(sessions)
    db.query("delete from outbox.served")
    assert [line["queue"] for line in watch("workers") if line["pid"]] == [None] * len(sessions)
    one.kill()
    worker.close()


def test_a_lease_ends_although_its_key_is_paused(db, tasks, watch):
    add(db, "a", "b")
    worker = Worker(db, "tasks")
    first, second = worker.take(2, lease="1 hour")
    db.query("select outbox.pause('tasks', 'a'), outbox.pause('tasks', 'b')")
    shown = lambda view: [(line["event_id"], line["expires_at"]) for line in watch(view) if line["event_id"]]
    assert sorted(shown("workers")) == [(lease.id, lease.expires_at) for lease in (first, second)]
    db.query("update outbox.parked set resume_at = now() - interval '1 second' where key = 'a'")
    assert shown("workers") == [(second.id, second.expires_at)]
    assert db.query("select event_id, over from outbox.status_leases order by 1") == [(first.id, True), (second.id, False)]
    (stuck,) = watch("stuck")
    assert [stuck[name] for name in ("what", "key", "event_id", "worker")] == ["lease over", "a", first.id, "worker"]
    assert ("a", stuck["since"]) == db.query("select key, resume_at from outbox.parked where key = 'a'")[0]
    assert worker.done(second.token)
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('tasks', lock_class => 7)")  # nobody has anything
    assert worker.take(2) == []
    db.query("select outbox.resume('tasks', 'a')")
    assert [event.id for event in worker.take(2)] == [first.id]


def test_of_many_leases_those_of_each_queue_that_end_first_are_shown(db, tasks, watch):
    """A queue with many does not hide another's; what is over or waits for a retry takes no place."""
    db.query("insert into outbox.parked (queue, key, event_id, next_at, token, worker, taken_id, taken_at)"
             " select q, 'k' || n, n, now() + interval '1 hour' + n * interval '1 second',"
             "        case when n > 5 then gen_random_uuid() end, 'w', n, now()"
             " from (values ('tasks', 1500), ('others', 7)) v (q, many), generate_series(1, many) n;"
             "update outbox.parked set next_at = now() - interval '1 minute' where event_id = 6")
    shown = [(line["queue"], line["event_id"]) for line in watch("workers")]
    assert sorted(shown) == [("others", 7)] + [("tasks", n) for n in range(7, 1007)]


@pytest.mark.parametrize("view", VIEWS)
def test_a_dashboard_needs_no_right_on_what_lies_below(db, tasks, watch, view):
    assert watch(view) is not None
    for role, denied in [("dashboard", "select * from outbox.dead"), ("dashboard", "select outbox.guess('select 1')"),
                         ("dashboard", "select outbox.count_some('outbox.events')"), (RELAY_ROLE, "select * from outbox.overview")]:
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            db.query(f"set role {role}; {denied}")
