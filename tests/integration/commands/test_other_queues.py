"""Commands about a queue that is in no configuration: one that only workers use, and what is left of one."""

import json

import pytest

from tests.support.postgres import OWNER_ROLE
from tests.support.servers import run_command
from tests.support.workers import Worker

CONFIG = """
database: "{dsn}"
sinks: {{ none: {{ type: discard }} }}
queues: {{ orders: {{ sink: none }} }}
"""
TABLE = "create table public.jobs (id bigserial primary key, customer text, body jsonb); create index on public.jobs (customer, id)"


@pytest.fixture
def run(db, tmp_path):
    """run(words) -> what the command prints, with a configuration that has another queue; of what it refuses, why."""
    path = tmp_path / "pgcourier.yaml"
    path.write_text(CONFIG.format(dsn=db.operator_dsn))

    def run(words, code=0):
        done = run_command(*words.split(), "-c", str(path))
        assert done.returncode == code, done.stderr + done.stdout
        assert code == 0 or (done.stdout, done.stderr.count("\n")) == ("", 1)
        return done.stdout if code == 0 else done.stderr.removeprefix("pgcourier: ").replace(str(path), "FILE")

    return run


@pytest.fixture
def worker(db):
    """With three jobs: two of customer a, and one of none."""
    db.query(TABLE)
    db.let_operator_in("public.jobs")
    db.query(f"grant select, delete on public.jobs to {OWNER_ROLE}; set role {OWNER_ROLE};"
             " select outbox.queue_set('jobs', 'public.jobs', key_column => 'customer', payload_column => 'body', lock_class => 77)")
    db.query("insert into public.jobs (customer) values ('a'), ('a'), (null)")
    one = Worker(db, "jobs")
    yield one
    one.close()


def give_up(worker):
    for event in worker.take(10):
        assert worker.fail(event.token, "no such customer", True)


def test_what_workers_gave_up_is_listed_counted_and_shown(run, worker):
    give_up(worker)
    assert {letter["id"] for letter in json.loads(run("dead list --json --queue jobs"))} == {1, 3}
    assert [letter["row"]["customer"] for letter in json.loads(run("dead show --json --queue jobs --key a"))] == ["a"]
    assert [(row["error"], row["dead"]) for row in json.loads(run("failures --json --queue jobs"))] == [("no such customer", 2)]


def test_what_workers_gave_up_comes_back_to_them_in_order(db, run, worker):
    give_up(worker)
    assert run("dead retry --queue jobs --all") == "retried 2 dead letters, opened 0 closed keys\n"
    taken = worker.take(10)
    assert [(event.id, event.key) for event in taken] == [(1, "a"), (3, None)]
    assert [worker.done(event.token) for event in taken] == [True, True]
    assert [event.id for event in worker.take(10)] == [2] and db.query("select * from outbox.dead") == []


@pytest.mark.parametrize("verb, said, head", [("retry", "retried", 1), ("drop", "dropped", 2)])
def test_a_key_that_workers_closed_is_opened(db, run, worker, verb, said, head):
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('jobs', 'public.jobs', key_column => 'customer', lock_class => 77, on_exhausted => 'park')")
    give_up(worker)
    assert worker.take(10) == []
    assert run(f"dead {verb} --queue jobs --key a") == f"{said} 0 dead letters, opened 1 closed key\n"
    assert [event.id for event in worker.take(10)] == [head]


def test_what_workers_take_is_paused_drained_and_resumed(run, worker):
    assert run("pause jobs --key a") == "jobs, key a is paused\n"
    (event,) = worker.take(10)
    assert event.id == 3
    assert run("drain jobs --timeout 500ms", 75).endswith("after 500ms a relay or worker still holds 1 key of jobs, or of another queue over its table; it stays paused\n")
    assert worker.done(event.token)
    assert run("drain jobs") == "jobs is paused and nothing of it is on its way\n"
    assert run("resume jobs --key a") == "jobs, key a goes on\n" and worker.take(10) == []
    assert run("resume jobs") == "jobs goes on\n"
    assert [event.id for event in worker.take(10)] == [1]


def test_a_key_that_somebody_has_is_waited_for(db, run, worker):
    """By the queue's own lock class."""
    give_up(worker)
    holder = db.connect()
    holder.cursor().execute("begin; select pg_advisory_xact_lock(77, hashtext('a'))")
    assert ": queue jobs, key a\n" in run("dead retry --queue jobs --key a", code=75)
    holder.close()
    assert run("dead retry --queue jobs --key a") == "retried 1 dead letter, opened 0 closed keys\n"


def test_a_queue_without_letters_is_no_mistake(run, worker):
    assert json.loads(run("dead list --json --queue jobs")) == json.loads(run("failures --json --queue jobs")) == []
    assert run("dead retry --queue jobs --all") == "retried 0 dead letters, opened 0 closed keys\n"
    assert run("dead drop --queue jobs --key a", code=64) == "dead drop: no dead letter and no closed key of key a in queue jobs\n"


@pytest.mark.parametrize("command", ["failures", "dead list", "dead show", "dead retry --all", "dead drop --all"])
def test_a_queue_that_nobody_knows_is_refused_with_those_that_there_are(run, worker, command):
    assert run(f"{command} --queue jubs", code=64) == (
        'FILE has no queue "jubs"; did you mean "jobs"? (its queues: orders; others in the database: jobs)\n')


def test_of_a_queue_that_is_no_more_letters_are_shown_and_left(db, run, worker):
    give_up(worker)
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_drop('jobs')")
    assert len(json.loads(run("dead list --json --queue jobs"))) == 2
    for verb in "retry", "drop":
        assert run(f"dead {verb} --queue jobs --all", code=64) == (
            "nothing here says which table queue jobs has: give the configuration of the relay that serves it, or make it known by"
            " outbox.queue_set('jobs', ...)\n")
    assert db.value("select count(*) from outbox.dead") == 2


@pytest.mark.parametrize("words", ["dead retry --all --queue", "dead drop --key a --queue", "pause", "resume", "drain"])
def test_of_a_replay_that_has_stopped_it_is_said_how_it_goes_on(db, run, words, tmp_path):
    number = db.value("insert into outbox.replay (queue, source, events) values ('jobs', 'archive', 1) returning replay_id")
    name = f"jobs (replay {number})"
    db.query("insert into outbox.parked (queue, key, event_id, attempts, next_at) values (%s, 'a', 1, 1, 'infinity')", (name,))
    done = run_command(*words.split(), name, "-c", str(tmp_path / "pgcourier.yaml"))
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr == (f'pgcourier: "{name}" is no queue but a replay that has stopped: `pgcourier replay -c FILE --resume {number}`'
                           f" opens its closed keys and goes on, --cancel {number} forgets what is left\n")
    assert db.query("select * from outbox.paused") == []


def test_of_a_queue_whose_table_is_gone_it_is_said(db, run, worker):
    give_up(worker)
    db.query("drop table public.jobs")
    assert run("dead retry --queue jobs --all", code=64) == "the table of queue jobs is gone; fix: select outbox.queue_drop('jobs');\n"
