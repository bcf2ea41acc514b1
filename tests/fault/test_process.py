"""What happens to a relay's process: it is stopped and woken, starved, started in a bare place, and its clock jumps."""

import contextlib
import glob
import os
import resource
import shutil
import signal
import struct
import subprocess
import time
from collections import Counter

import pytest

from tests.support.fault_run import FaultRun
from tests.support.leases import hang
from tests.support.process import REPO
from tests.support.relay import binary, environment
from tests.support.servers import HANG, Reply, wait_until
from tests.support.shop import Shop
from tests.support.targets import FileTarget, HttpTarget

KEYS = 20


@pytest.fixture
def run(relay, db, http):
    return FaultRun(relay, Shop(db), HttpTarget(http))


@pytest.fixture
def file_run(relay, db, tmp_path):
    return FaultRun(relay, Shop(db), FileTarget(tmp_path / "events.jsonl"))


def terminate_sessions(db):
    db.query("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pgcourier'"
             " and datname = current_database()")


POLL = {"7", "271", "73"}  # poll and ppoll, as x86 and ARM number them


def stop_while_it_waits(process):
    """SIGSTOP. True when that is certain to have met it in poll(2), where it is nearly all the time."""
    for _ in range(50):
        process.send(signal.SIGSTOP)
        wait_until(lambda: read(f"/proc/{process.pid}/stat").rsplit(")", 1)[1].split()[0] == "T", 60, "it to stand still")
        with contextlib.suppress(PermissionError):
            if read(f"/proc/{process.pid}/syscall").split()[0] in POLL:
                return True
        process.send(signal.SIGCONT)
    process.send(signal.SIGSTOP)
    return False


def read(path):
    with open(path) as file:
        return file.read()


def test_a_relay_that_wakes_up_without_its_claims_sends_nothing_more(run, http):
    """It was stopped with all keys in delivery; its sessions ended, another relay did the work. The answers that it finds
    when it wakes up must not make it go on with its keys: its connection is as readable as they are. Only when it was
    stopped between its look at the connection and that at the answers, it sends one more event of each."""
    run.add(10 * KEYS, keys=KEYS)
    first_requests = iter(range(KEYS))
    http.rule(lambda request: next(first_requests, None) is not None, Reply(action=HANG))
    zombie = run.start(connections=1)
    wait_until(lambda: http.in_flight == KEYS, 60, "a delivery of every key")
    waited = stop_while_it_waits(zombie.process)
    run.fault("a relay is stopped and loses its claims", in_flight=KEYS if waited else 2 * KEYS, relay=zombie)
    terminate_sessions(run.db)
    run.start()
    run.wait_until_empty()
    http.release()
    wait_until(lambda: http.in_flight == 0, 60, "the answers to the stopped relay")
    zombie.process.send(signal.SIGCONT)
    wait_until(lambda: zombie.logged("claim.lost"), 60, "the stopped relay to notice")
    run.add(2 * KEYS, keys=KEYS)
    assert run.finish() >= KEYS
    print("it was stopped", "in poll(2)" if waited else "somewhere")


def test_no_broken_configuration_is_taken_up(file_run):
    """Each of those that check-config is tested with, one after the other, by SIGHUP."""
    one = file_run.start(env={"PGCOURIER_BAD": "5x"})
    wait_until(lambda: one.logged("relay.start"), 30, "the relay to start")
    paths = sorted(glob.glob(os.path.join(REPO, "tests", "unit", "config", "broken_configs", "*.yaml")))
    assert len(paths) > 50
    for number, path in enumerate(paths, 1):
        shutil.copyfile(path, one.config_path)
        one.send(signal.SIGHUP)
        wait_until(lambda number=number: len(one.logged("config.refused")) == number, 30, f"{path} to be refused")
        file_run.add(10)
    file_run.finish()
    assert not one.logged("config.loaded")


def test_a_relay_without_file_descriptors_waits_for_some(run, http):
    """Its connections to the receiver and to the database need them."""
    one = run.start()
    run.add(5 * KEYS, keys=KEYS)
    run.wait_until_empty()
    run.fault("no file descriptors", in_flight=KEYS)
    _, most = resource.prlimit(one.pid, resource.RLIMIT_NOFILE)
    terminate_sessions(run.db)
    resource.prlimit(one.pid, resource.RLIMIT_NOFILE, (4, most))
    http.stop()  # the connections that are open end
    http.start()
    terminate_sessions(run.db)
    run.add(5 * KEYS, keys=KEYS)
    wait_until(lambda: one.logged("(?i)too many open files"), 30, "the relay to say what it lacks")
    before = len(one.log)
    time.sleep(2)
    assert len(one.log) - before < 50, "it tries without a pause"
    assert one.exit_code is None
    assert run.shop.left() == 5 * KEYS
    resource.prlimit(one.pid, resource.RLIMIT_NOFILE, (most, most))
    run.finish()


def test_a_log_that_cannot_be_written_is_done_without(file_run, tmp_path):
    config = tmp_path / "pgcourier.yaml"
    config.write_text(file_run.shop.config(file_run.target.sink(), **file_run.target.queue) + "stats_interval: 20ms\n")
    file_run.add(1000)
    with open("/dev/full", "w") as full:
        process = subprocess.Popen([binary(), "run", "-c", str(config)], stdout=full, stderr=full, env=environment())
    try:
        wait_until(lambda: file_run.shop.left() == 0, 30, "the table to be empty")
        process.terminate()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
    file_run.finish()


@pytest.fixture
def step_clock(tmp_path):
    """A function that moves the wall clock of relays with the given environment, or has them believe that the machine was
    suspended, and that environment."""
    library, offset = tmp_path / "step_clock.so", tmp_path / "offset"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-D_GNU_SOURCE", "-o", library,
                    os.path.join(REPO, "tests", "support", "step_clock.c"), "-ldl"], check=True)

    def step(seconds, suspended=0):
        with open(offset, "r+b" if offset.exists() else "wb") as file:
            file.write(struct.pack("qq", seconds, suspended))

    step(0)
    return step, {"LD_PRELOAD": str(library), "STEP_CLOCK": str(offset)}


def test_steps_of_the_clock_change_nothing(run, http, step_clock):
    """An hour forwards must not end requests or waits, an hour back must not prolong them. The time of the log's lines shows
    that the relay's clock did step."""
    step, env = step_clock
    refusals = Counter()

    def refuse(request):
        event = int(request.headers["event-id"])
        refusals[event] += event % 7 == 0
        return 0 < refusals[event] < 4

    http.rule(refuse, Reply(500))
    http.respond = lambda request: Reply(200, delay_s=0.05)
    one = run.start(env=env, program=binary(["release"]), top="stats_interval: 50ms",
                    retry="{ base: 100ms, max: 400ms, attempts: 100 }")
    hours = set()
    for seconds in (3600, -3600, 0):
        before = run.target.count()
        run.add(6 * KEYS, keys=KEYS)
        wait_until(lambda before=before: run.target.count() > before + KEYS, 60, "some of the events to arrive")
        step(seconds)
        run.wait_until_empty()
        lines = len(one.log)
        wait_until(lambda lines=lines: len(one.log) > lines + 1, 60, "a line of statistics")
        hours.add(one.log[-1].split(":")[0])
    assert len(hours) >= 3
    run.finish()


def test_a_machine_that_was_suspended_counts_that_time_of_a_lease(run, http, step_clock):
    """Its relay has a key whose lease has ended meanwhile, and has not asked the database since: the answer that it finds
    when it wakes up must not make it send the key's next event, which somebody else has sent."""
    step, env = step_clock
    settings = {"ordering": "lease", "lease": "{ duration: 1m, owner: name }", "connections": 1, "sink": {"timeout": "300s"}}
    answer = hang(http, "relay-1")
    sleeper = run.start(env=env, program=binary(["release"]), **settings)
    run.add(5, keys=1)
    wait_until(lambda: http.in_flight == 1, 60, "the key's first event to be sent")
    waited = stop_while_it_waits(sleeper.process)
    run.fault("a machine is suspended", in_flight=1 if waited else 2, relay=sleeper)
    run.db.query("update outbox.parked set next_at = clock_timestamp() where token is not null")
    run.start(**settings)
    run.wait_until_empty()
    step(61, suspended=61)
    answer()
    wait_until(lambda: http.in_flight == 0, 60, "the answer to the relay that sleeps")
    sleeper.process.send(signal.SIGCONT)
    wait_until(lambda: sleeper.logged("lease.lost"), 60, "it to notice")
    run.finish()
    assert len([request for request in http.requests if request.target == "/in/relay-1"]) == (1 if waited else 2)


PLACES = {
    "no environment": ["env", "-i"],
    "no such locale": ["env", "LC_ALL=xx_YY.UTF-8", "LANG=tr_TR", "TZ=Nowhere/Nothing"],
    "a folder that is gone": ["sh", "-c", 'mkdir "$0/gone" && cd "$0/gone" && rmdir "$0/gone" && exec "$@"'],
    "no folder to write to": ["sh", "-c", 'cd /proc && exec "$@"', "sh"],
    "closed streams": ["sh", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "sh"],
    "signals ignored": ["sh", "-c", 'trap "" HUP INT QUIT PIPE ALRM USR1 USR2 CHLD; exec "$@"', "sh"],
}


@pytest.mark.parametrize("place", PLACES)
def test_a_relay_runs_anywhere(file_run, tmp_path, place):
    config = tmp_path / "pgcourier.yaml"
    config.write_text(file_run.shop.config(file_run.target.sink(), **file_run.target.queue))
    file_run.add(100)
    wrapper = [word if word != "$0" else str(tmp_path) for word in PLACES[place]]
    if place == "a folder that is gone":
        wrapper.append(str(tmp_path))
    done = subprocess.run([*wrapper, binary(), "run", "-c", str(config), "--until-empty"], stdin=subprocess.DEVNULL,
                          capture_output=place != "closed streams", env=environment(), timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    file_run.finish()
