"""Since when an event fails, or waits for another one: outbox.parked says it of that event, however long its key has had an entry."""

import pytest

from tests.support.postgres import OWNER_ROLE
from tests.support.servers import Reply, wait_until
from tests.support.workers import Worker

CONFIG = """
database: "{db}"
sinks: {{ web: {{ type: http, url: "{url}" }} }}
queues:
  jobs: {{ table: public.jobs, columns: {{ key: k, payload: body, after: after_ids }}, sink: web, retry: {{ base: 10ms, max: 20ms, attempts: 1000 }},
           ordering: {ordering} }}
"""

# That of a key that always has more events, or of what was delayed for long.
OLD = """
insert into outbox.parked (queue, key, keyless, event_id, next_at, first_failed_at)
select 'jobs', coalesce(k, ''), k is null, id, clock_timestamp(), now() - interval '5 hours' from public.jobs where id = %s"""
AGE = "update outbox.parked set first_failed_at = now() - interval '5 hours'"
OVER = "update outbox.parked set next_at = clock_timestamp() where event_id = %s"
SINCE = "select first_failed_at from outbox.parked where event_id = %s"


@pytest.fixture
def jobs(db):
    """jobs(key, *after) -> the id of another one."""
    db.psql("create table public.jobs (id bigserial primary key, k text, body jsonb, after_ids bigint[]); create index on public.jobs (k, id)")
    db.let_relay_in("public.jobs")
    db.query(f"grant select, delete on public.jobs to {OWNER_ROLE}")
    return lambda key, *after: db.value("insert into public.jobs (k, body, after_ids) values (%s, '{}', %s) returning id", [key, list(after) or None])


@pytest.fixture
def worker(db, jobs):
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('jobs', 'public.jobs', key_column => 'k', after_column => 'after_ids', max_attempts => 3)")
    one = Worker(db, "jobs")
    yield one
    one.close()


def is_new(db, event):
    return db.value(f"select ({SINCE}) > now() - interval '1 hour'", [event])


def look_again(db, event):
    """What it waits for is asked for once more, as it is each hour."""
    before = db.value("select updated_at from outbox.parked where event_id = %s", [event])
    db.query(OVER, [event])
    return lambda: db.query("select event_id from outbox.parked where event_id = %s and updated_at > %s and next_at > now() and token is null", [event, before])


@pytest.mark.parametrize("ordering", ["per_key", "lease"])
@pytest.mark.parametrize("key", ["a", None])
def test_a_relays_failures_are_as_old_as_the_first(db, relay, http, jobs, key, ordering):
    http.respond = lambda request: Reply(500)
    event = jobs(key)
    db.query(OLD, [event])
    began = db.value("select clock_timestamp()")
    one = relay(CONFIG.format(db=db.dsn, url=http.url, ordering=ordering))
    found = set()

    def fails():
        failures = db.query("select attempts, first_failed_at from outbox.parked where last_error <> ''")
        found.update(at for _, at in failures)
        return failures and failures[0][0] > 3

    wait_until(fails, what="failures", interval_s=0.01)
    assert len(found) == 1 and found.pop() > began
    assert one.stop() == 0  # so that nothing is leased: status_parked counts what waits
    assert db.value("select first_at from outbox.failures") > began and db.value("select oldest_failure from outbox.status_parked") > began


@pytest.mark.parametrize("ordering", ["per_key", "lease"])
@pytest.mark.parametrize("key", ["a", None])
def test_a_relays_event_waits_for_another_since_it_came_to_wait(db, relay, http, jobs, key, ordering):
    db.query("select outbox.pause('jobs', 'z', is_new => true)")
    first = jobs("z")
    event, more = jobs(key, first), jobs("a")
    db.query(OLD, [event])
    one = relay(CONFIG.format(db=db.dsn, url=http.url, ordering=ordering))
    wait_until(lambda: db.query("select event_id from outbox.parked where after_id = %s and token is null", [first]), what="it to wait")
    assert is_new(db, event) and db.query("select * from outbox.stuck") == []
    db.query(AGE)
    wait_until(look_again(db, event), what="another look")
    assert not is_new(db, event) and [row[0] for row in db.query("select event_id from outbox.stuck")] == [event]
    if key:
        db.query("update public.jobs set after_ids = array[%s] where id = %s; update public.jobs set after_ids = null where id = %s", [first, more, event])
        db.query(OVER, [event])
        wait_until(lambda: db.query("select event_id from outbox.parked where event_id = %s and after_id = %s and token is null", [more, first]), what="the next one")
        assert is_new(db, more)
    assert one.stop() == 0


@pytest.mark.parametrize("key", ["a", None])
def test_a_workers_event_waits_for_another_since_it_came_to_wait(db, jobs, worker, key):
    first = jobs("z")
    event = jobs(key, first)
    db.query(OLD, [event])
    assert [taken.id for taken in worker.take(5)] == [first]
    assert is_new(db, event) and db.query("select * from outbox.stuck") == []
    db.query(AGE)
    look = look_again(db, event)
    assert worker.take(5) == [] and look()
    assert not is_new(db, event)


@pytest.mark.parametrize("key", ["a", None])
def test_a_lease_that_ran_out_is_a_failure_and_may_be_the_first(db, jobs, worker, key):
    event = jobs(key)
    db.query(OLD, [event])
    (taken,) = worker.take(5)
    assert taken.attempt == 1 and not is_new(db, event)
    db.query(OVER, [event])
    (taken,) = worker.take(5)
    assert taken.attempt == 2 and is_new(db, event)
    db.query(AGE)
    assert worker.fail(taken.token) and not is_new(db, event)


def test_the_first_failure_of_a_key_that_is_closed_as_its_event_cannot_go_is_that(db, jobs, worker):
    db.psql("create function public.refuse() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$;"
            "create trigger refuse before delete on public.jobs for each row execute function public.refuse();"
            "update outbox.queue set max_attempts = 1")
    event = jobs("a")
    db.query(OLD, [event])
    assert [taken.id for taken in worker.take(5)] == [event]
    db.query(OVER, [event])
    assert worker.take(5) == [] and db.query("select attempts, next_at = 'infinity' from outbox.parked") == [(1, True)]
    assert is_new(db, event)
