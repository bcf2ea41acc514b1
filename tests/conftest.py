"""Fixtures for all suites. Servers start when the first test asks for them and serve the whole session, one of each kind in
each of the processes that run tests; what a test puts into them is its own: a fresh database, an empty Redis, a topic name
of its own."""

import contextlib
import functools
import os
import time

import pytest

from tests.proof import histories
from tests.support import parallel, privileges, servers, targets
from tests.support.process import exit_on_signals

DAY_S = 24 * 60 * 60


def pytest_configure(config):
    histories.install()
    privileges.install()
    exit_on_signals(lambda status: leave(config, status))
    config.addinivalue_line("markers", "deep: takes minutes; runs with PGCOURIER_DEEP=1 only")
    config.addinivalue_line("markers", "alone: measures what others would disturb; no other test runs meanwhile")
    config.addinivalue_line("markers", "superuser(reason): what it tests logs in as a superuser or the owner of a table")


def leave(config, status):
    if parallel.deals_out(config):
        parallel.stop_the_others()
    pytest.exit("stopped by a signal", returncode=status)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    with parallel.room(item.config, alone=item.get_closest_marker("alone") is not None):
        yield


# In deep runs: twenty minutes each, then minutes, then seconds by the hundred; then what takes long in every run.
LONGEST = ("test_system_calls.py", "test_chaos.py", "test_fault_points.py", "test_allocations.py", "test_kafka_runs.py",
           "test_exactly_once.py", "test_failover.py", "test_new_table.py", "test_poison.py", "test_sink_down.py", "test_process.py")


def by_length(item):
    """Long tests come first, so that no process is left with one at the end. A test that runs alone waits for all others
    and is waited for, so those come last."""
    place = LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST)
    return item.get_closest_marker("alone") is not None, place


def pytest_collection_modifyitems(config, items):
    """Deep tests are left out of a default run, which is not the same as skipping: nothing asked for them."""
    items.sort(key=by_length)
    if os.environ.get("PGCOURIER_DEEP") == "1":
        return
    deep = [item for item in items if item.get_closest_marker("deep")]
    if deep:
        config.hook.pytest_deselected(items=deep)
        items[:] = [item for item in items if item not in deep]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    """Leaves the number of histories that the test checked in the results, for tests/proof/report.py."""
    before = histories.checked
    yield
    item.user_properties.append(("histories", histories.checked - before))
    item.offences = privileges.collect()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Fails a test whose relays had more rights than they need; puts the end of each relay's log under a failed test."""
    outcome = yield
    report = outcome.get_result()
    if report.when == "call" and report.passed:
        report.longrepr = privileges.complaint(item.get_closest_marker("superuser"), item.offences)
        report.outcome = "failed" if report.longrepr else "passed"
    if report.when == "call" and report.failed:
        for number, relay in enumerate(getattr(item, "relays", [])):
            code = relay.exit_code if relay.process else "not started"
            tail = relay.process.log_tail(40) if relay.process else ""
            report.sections.append((f"relay {number}, exit code {code}", tail))


@pytest.fixture(scope="session")
def pg():
    """The session's PostgreSQL. A test that stops or reconfigures a server takes own_pg instead."""
    with servers.Postgres() as server:
        yield server


@pytest.fixture
def own_pg():
    with servers.Postgres() as server:
        yield server


def migrate(database):
    """As its owner does, and with a login for each kind of program."""
    done = servers.run_command("migrate", "-d", database.owner_dsn)
    if done.returncode != 0:
        raise servers.ServerError(f"pgcourier migrate exited with {done.returncode}: {done.stderr}{done.stdout}")
    database.create_logins()


@pytest.fixture(scope="session")
def migrated_template(pg):
    """migrated_template() -> the name of a database that was migrated today, by UTC; copying it is quicker than migrating
    for every test. Yesterday's would not do: an archive has partitions from the day on that it was made."""
    @functools.cache
    def template_of(day):
        database = pg.create_database(name=f"outbox_template_{day}")
        migrate(database)
        return database.name

    return lambda: template_of(int(time.time()) // DAY_S)


@pytest.fixture
def one_day():
    """The day is the same, by UTC, from before the database is made to the end of the test."""
    servers.wait_until(lambda: time.time() % DAY_S < DAY_S - 60, 90, "the day to be over")


@pytest.fixture
def db(pg, migrated_template):
    """A fresh database with pgcourier's schema."""
    database = pg.create_database(migrated_template())
    yield database
    database.drop()


@pytest.fixture
def empty_db(pg):
    """A fresh database with nothing in it."""
    database = pg.create_database()
    yield database
    database.drop()


@pytest.fixture(scope="session")
def pg_of():
    """pg_of(17) -> the session's PostgreSQL of that major release, 14 to 18."""
    with contextlib.ExitStack() as stack:
        yield functools.cache(lambda release: stack.enter_context(servers.Postgres(release=release)))


@pytest.fixture
def db_of(pg_of):
    """db_of(17) -> a fresh database with pgcourier's schema, of that major release."""
    with contextlib.ExitStack() as stack:
        def make(release):
            database = pg_of(release).create_database()
            stack.callback(database.drop)
            migrate(database)
            return database

        yield make


@pytest.fixture(scope="session")
def _redis_server():
    with servers.Redis() as server:
        yield server


@pytest.fixture
def redis(_redis_server):
    """The session's Redis, emptied, and up again if the last test left it down."""
    if _redis_server.running:
        _redis_server.resume()
    else:
        _redis_server.start()
    with _redis_server.client() as client:
        client.flushall()
    return _redis_server


@pytest.fixture(scope="session")
def _kafka_server():
    with servers.Kafka() as server:
        yield server


@pytest.fixture
def kafka(_kafka_server):
    """The session's broker, up again if the last test left it down. Topics are for the test to create; see `topic`."""
    if _kafka_server.running:
        _kafka_server.resume()
    else:
        _kafka_server.start()
    return _kafka_server


@pytest.fixture
def topic(kafka, request):
    """The name of a fresh topic with 12 partitions."""
    name = f"{request.node.originalname}-{servers.free_port()}"
    kafka.create_topic(name, 12)
    return name


@pytest.fixture
def http():
    with servers.HttpReceiver() as receiver:
        yield receiver


@pytest.fixture
def target(request, tmp_path):
    """Where relays deliver to, by name: parametrize it indirectly with file, exec, redis, http or kafka."""
    if request.param == "file":
        return targets.FileTarget(tmp_path / "events.jsonl")
    if request.param == "exec":
        return targets.ExecTarget(tmp_path / "events.jsonl", batch=50)
    if request.param == "redis":
        return targets.RedisTarget(request.getfixturevalue("redis"))
    if request.param == "http":
        receiver = targets.HttpTarget(request.getfixturevalue("http"))
        receiver.linger()
        return receiver
    return targets.KafkaTarget(request.getfixturevalue("kafka"), request.getfixturevalue("topic"))


@pytest.fixture
def relay(request):
    """A function: relay(config_text, until_empty=False) starts one; all are killed at the end of the test."""
    request.node.relays = started = []

    def start(config, **options):
        one = servers.Relay(config, **options)
        started.append(one)
        return one.start()

    yield start
    for one in started:
        one.kill()
        one.close()
