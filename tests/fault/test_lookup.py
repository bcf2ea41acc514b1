"""Name servers that do not answer. Who asks them waits for half a minute and cannot be called back."""

import os
import signal
import subprocess
import time

import pytest

from tests.support.fault_run import FaultRun
from tests.support.process import REPO
from tests.support.relay import SANITIZERS
from tests.support.servers import HANG, Reply, wait_until
from tests.support.shop import Shop
from tests.support.targets import HttpTarget

KEYS = 20
NAME = "host=db.example"  # known as 127.0.0.1


class Resolver:
    """Of relays with its environment; it answers until it hangs."""

    def __init__(self, folder):
        self.library, self.hung = folder / "hung_resolver.so", folder / "hung"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-D_GNU_SOURCE", "-o", self.library,
                        os.path.join(REPO, "tests", "support", "hung_resolver.c"), "-ldl"], check=True)
        self.env = {"LD_PRELOAD": str(self.library), "HUNG_RESOLVER": str(self.hung),
                    "ASAN_OPTIONS": SANITIZERS["ASAN_OPTIONS"] + ":verify_asan_link_order=0"}

    def hang(self):
        self.hung.touch()

    def answer(self):
        self.hung.unlink()


@pytest.fixture
def resolver(tmp_path):
    return Resolver(tmp_path)


@pytest.fixture
def run(relay, db, http):
    return FaultRun(relay, Shop(db), HttpTarget(http))


def by_name(db):
    return db.dsn.replace("host=127.0.0.1", NAME) + " sslmode=disable"


def terminate_sessions(db):
    db.query("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pgcourier'"
             " and datname = current_database()")


def wait_for_statistics(one, lines):
    before = len(one.logged("msg=queue.stats"))
    wait_until(lambda: len(one.logged("msg=queue.stats")) >= before + lines, 10, "the loop to go on")


@pytest.fixture
def hung(run, http, resolver):
    """A relay without its sessions, which no name server answers: the run, the relay, the resolver."""
    one = run.start(database=by_name(run.db), env=resolver.env, top="stats_interval: 50ms\nshutdown_timeout: 1s")
    run.add(5 * KEYS, keys=KEYS)
    run.wait_until_empty()
    first_requests = iter(range(KEYS))
    http.rule(lambda request: next(first_requests, None) is not None, Reply(action=HANG))
    run.add(5 * KEYS, keys=KEYS)
    wait_until(lambda: http.in_flight == KEYS, 60, "a delivery of every key")
    resolver.hang()
    run.fault("its sessions end, and no name server answers", in_flight=KEYS)
    terminate_sessions(run.db)
    wait_until(lambda: one.logged("msg=database.down"), 60, "the relay to notice")
    return run, one, resolver


def test_name_servers_that_hang_hold_nothing_up(hung, http):
    """The loop turns, answers are taken, and once they answer all is as before."""
    run, one, resolver = hung
    wait_for_statistics(one, 3)
    http.release()
    wait_until(lambda: http.in_flight == 0, 10, "the answers")
    wait_for_statistics(one, 3)
    wait_until(lambda: one.logged('could not translate host name .*db.example.*no answer within 10 s'), 30, "what is wrong to be told")
    wait_for_statistics(one, 3)
    assert run.shop.left() == 5 * KEYS
    resolver.answer()
    run.finish()


def test_a_relay_ends_while_a_name_server_hangs(hung, http):
    """Its threads that wait for one are left alone; a sanitizer sees no leak and no race in it."""
    _, one, _ = hung
    http.release()
    wait_until(lambda: http.in_flight == 0, 10, "the answers")
    begun = time.monotonic()
    assert one.stop(signal.SIGTERM, timeout_s=10) in (0, 75)
    assert time.monotonic() - begun < 8


def test_a_reload_that_no_name_server_answers_is_refused(run, resolver):
    one = run.start(database=by_name(run.db), env=resolver.env)
    wait_until(lambda: one.logged("msg=relay.start"), 60, "the relay to start")
    resolver.hang()
    one.send(signal.SIGHUP)
    wait_until(lambda: one.logged('msg=config.refused.*db.example.*no answer within 10 s'), 30, "it to be refused")
    resolver.answer()
    run.add(5 * KEYS, keys=KEYS)
    run.finish()
