"""Keys that are closed while events of theirs become due."""

import time

import pytest

from tests.support.servers import Reply, run_command, wait_until
from tests.support.timers import CONFIG, over_timers, put_into, sent


@pytest.fixture
def timers(db):
    return put_into(db)


def test_a_closed_key_stays_at_the_event_that_closed_it(db, timers):
    """What becomes due in front of it, or is found there: `dead drop` would drop that."""
    worker = over_timers(db, "pass")
    db.query("update outbox.queue set on_exhausted = 'park'")
    timers(e2=("a", 0.3), e3=("a", -1))
    (event,) = worker.take(1)
    assert event.id == 3 and worker.fail(event.token, "never", fatal=True)
    timers(e1=("a", -1))
    moved = "select max(moved_at) > (select at + interval '1 s' from public.timers where id = 2) from outbox.take_mark"
    wait_until(lambda: worker.take(5) == [] and db.value(moved), what="looks that begin later", interval_s=0.05)
    assert db.query("select event_id, attempts, last_error from outbox.parked") == [(3, 1, "never")]
    db.query("update outbox.parked set next_at = clock_timestamp(), attempts = 0")
    given = []

    def work():
        for event in worker.take(1):
            given.append(event.id)
            worker.release(event.token)
        return given and given[-1] == 1

    wait_until(work, what="the first one, now that the key is open", interval_s=0.05)


@pytest.mark.parametrize("verb, rest", [("retry", [2, 3]), ("drop", [2])])
def test_a_key_that_a_relay_has_closed_stays_at_the_event_that_closed_it(db, relay, http, timers, tmp_path, verb, rest):
    """What becomes due in front of it comes first when the key is open again."""
    http.rule(lambda request: request.json()["id"] == 3, Reply(400), times=1)
    config = CONFIG + "    retry: {{ attempts: 1, on_exhausted: park }}\n"
    one = relay(config.format(dsn=db.dsn, url=http.url, delayed="pass"))
    timers(e2=("a", 1.5), e3=("a", -1), e9=("b", 1.8))
    wait_until(lambda: sent(http) == [3, 9], what="a look that has found what became due before, too")
    wait_until(lambda: db.query("select event_id, attempts from outbox.parked") == [(3, 1)], what="the wait of the other to be settled")
    db.let_operator_in("public.timers")
    path = tmp_path / "operator.yaml"
    path.write_text(config.format(dsn=db.operator_dsn, url=http.url, delayed="pass"))
    done = run_command("dead", verb, "--key", "a", "-c", str(path))
    assert done.returncode == 0, done
    wait_until(lambda: db.value("select count(*) from public.timers") == 0)
    assert one.stop() == 0 and sent(http) == [3, 9, *rest]


def test_what_has_become_due_of_a_closed_key_is_not_read_again_and_again(db, relay, http, timers):
    http.rule(lambda request: request.json()["id"] == 20000, Reply(400), times=1)
    one = relay((CONFIG + "    retry: {{ attempts: 1, on_exhausted: park }}\n").format(dsn=db.dsn, url=http.url, delayed="pass"))
    db.query("insert into public.timers select n, 'a', clock_timestamp() + interval '2 s' from generate_series(1, 10001) n")
    timers(e20000=("a", -1))
    wait_until(lambda: db.value("select bool_and(at < clock_timestamp() - interval '3 s') from public.timers"), what="all to be long due")
    before = db.value("select idx_tup_fetch from pg_stat_user_tables where relname = 'timers'")
    time.sleep(2)
    assert db.value("select idx_tup_fetch from pg_stat_user_tables where relname = 'timers'") - before < 50_000
    timers(e30001=("b", 1), e30002=("b", -1))
    wait_until(lambda: sent(http) == [20000, 30002, 30001], what="what becomes due of others")
    assert one.stop() == 0


def test_workers_look_on_behind_what_becomes_due_of_a_closed_key(db, timers):
    worker = over_timers(db, "pass")
    db.query("update outbox.queue set on_exhausted = 'park'")
    db.query("insert into public.timers select n, 'a', clock_timestamp() + interval '1 s' from generate_series(1, 10001) n")
    timers(e20000=("a", -1))
    (event,) = worker.take(1)
    assert event.id == 20000 and worker.fail(event.token, "never", fatal=True)
    passed = "select max(due_to) > (select max(at) from public.timers where id < 20000) from outbox.take_mark"
    wait_until(lambda: worker.take(5) == [] and db.value(passed), what="the look to go on", interval_s=0.05)
