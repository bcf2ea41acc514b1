"""Signals, and streams that close."""

import os
import resource
import signal
import subprocess
import time

import pytest

from tests.support.postgres import Database
from tests.support.relay import binary, environment
from tests.support.servers import HANG, Reply, wait_until
from tests.support.shop import Shop
from tests.support.targets import FileTarget, HttpTarget

SLOW = 0.5
SOON_S = 10  # on a busy machine, too, and sooner than anything that was not to be waited for


@pytest.fixture
def shop(db):
    return Shop(db)


def to_file(path):
    return FileTarget(path).sink(sync=False)


def received(*paths):
    return [receipt for path in paths for receipt in FileTarget(path).receipts()]


def slow_relay(relay, shop, http, delay_s=SLOW, **config):
    """A relay with 50 deliveries in flight that take `delay_s`."""
    http.respond = lambda request: Reply(200, delay_s=delay_s)
    shop.add(100, 50)
    one = relay(shop.config(f'type: http, url: "{http.url}"', **config))
    wait_until(lambda: len(http.requests) == 50, 30, "50 deliveries in flight")
    return one


def transactions(db):
    return db.value("select count(*) from pg_stat_activity where application_name = 'pgcourier' and xact_start is not null"
                    " and datname = current_database()")


def sessions(db):
    return db.value("select count(*) from pg_stat_activity where application_name = 'pgcourier'"
                    " and datname = current_database()")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_what_is_in_flight_end_and_settles_it(relay, shop, http, number):
    one = slow_relay(relay, shop, http)
    started = time.monotonic()
    one.send(number)
    assert one.wait(SOON_S) == 0
    assert time.monotonic() - started < SOON_S
    assert len(http.requests) == 50, "nothing new was sent after the signal"
    assert shop.left() == 50, "what was acked is settled"
    shop.check(HttpTarget(http).receipts(), drained=False)
    wait_until(lambda: sessions(shop.db) == 0)


def test_a_second_signal_ends_it_at_once_and_rolls_back(relay, shop, http):
    """What was in flight was answered to nobody, and the next relay sends it again."""
    one = slow_relay(relay, shop, http, delay_s=20)
    started = time.monotonic()
    one.send(signal.SIGTERM)
    wait_until(lambda: one.logged("relay.stop"))
    one.send(signal.SIGTERM)
    assert one.wait(SOON_S) == 75
    assert time.monotonic() - started < SOON_S
    assert shop.left() == 100
    wait_until(lambda: sessions(shop.db) == 0)
    http.respond = None
    assert relay(shop.config(f'type: http, url: "{http.url}"'), until_empty=True).wait() == 0
    assert shop.check(HttpTarget(http).receipts()).duplicates == 50


def test_two_signals_in_quick_succession_are_two(relay, shop, http):
    for _ in range(5):
        http.reset()
        one = slow_relay(relay, shop, http, delay_s=20)
        one.send(signal.SIGTERM)
        one.send(signal.SIGINT)
        assert one.wait(SOON_S) == 75
        shop.db.query("truncate public.events")


def test_shutdown_timeout_cuts_off_what_takes_longer(relay, shop, http):
    one = slow_relay(relay, shop, http, delay_s=20, top="shutdown_timeout: 500ms")
    started = time.monotonic()
    one.send(signal.SIGTERM)
    assert one.wait(SOON_S) == 75
    assert 0.5 <= time.monotonic() - started < SOON_S
    assert shop.left() == 100


def test_what_was_acked_is_settled_when_the_rest_is_cut_off(relay, shop, http):
    """Half of the receivers answer, half hang."""
    http.respond = lambda request: Reply(200, delay_s=0.3 if int(request.headers["webhook-id"].rsplit("-", 1)[-1]) % 2 else 20)
    shop.add(50, 50)
    one = relay(shop.config(f'type: http, url: "{http.url}"', top="shutdown_timeout: 3s"))
    wait_until(lambda: len(http.requests) == 50)
    one.send(signal.SIGTERM)
    assert one.wait(SOON_S) == 75
    assert shop.left() == 25
    shop.check(HttpTarget(http).receipts(), drained=False)


def test_hangup_takes_up_a_new_configuration(relay, shop, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    one = relay(shop.config(to_file(first)))
    shop.add(500, 20)
    wait_until(lambda: shop.left() == 0)
    one.configure(shop.config(to_file(second)))
    one.send(signal.SIGHUP)
    wait_until(lambda: one.logged("config.loaded"))
    shop.add(500, 20)
    wait_until(lambda: shop.left() == 0)
    assert one.stop() == 0
    shop.check(received(first, second))
    assert FileTarget(first).count() == FileTarget(second).count() == 500


def test_hangups_in_mid_drain_lose_and_repeat_nothing(relay, shop, tmp_path):
    one = relay(shop.config(to_file(tmp_path / "0")))
    shop.add(10000, 200)
    for turn in range(1, 6):
        wait_until(lambda: shop.left() < 10000 - turn * 1000, 30)
        one.configure(shop.config(to_file(tmp_path / str(turn))))
        one.send(signal.SIGHUP)
        wait_until(lambda: len(one.logged("config.loaded")) == turn)
    wait_until(lambda: shop.left() == 0, 30)
    assert one.stop() == 0
    shop.check(received(*(tmp_path / str(turn) for turn in range(6))))


@pytest.mark.parametrize("broken", ["sinks: {", "nonsense: true", "", None])
def test_hangup_with_a_wrong_configuration_keeps_the_old_one(relay, shop, tmp_path, broken):
    one = relay(shop.config(to_file(tmp_path / "out")))
    shop.add(100, 20)
    wait_until(lambda: shop.left() == 0)
    if broken is None:
        os.remove(one.config_path)
    else:
        one.configure(broken)
    one.send(signal.SIGHUP)
    wait_until(lambda: one.logged("config.refused"))
    shop.add(100, 20)
    wait_until(lambda: shop.left() == 0)
    assert one.stop() == 0
    shop.check(received(tmp_path / "out"))


def test_a_signal_to_stop_outranks_a_hangup_that_is_under_way(relay, shop, http, tmp_path):
    one = slow_relay(relay, shop, http, delay_s=4)
    one.configure(shop.config(to_file(tmp_path / "out")))
    one.send(signal.SIGHUP)
    wait_until((tmp_path / "out").exists)  # the new configuration waits for what is in flight under the old one
    one.send(signal.SIGTERM)
    assert one.wait(20) == 0
    assert shop.left() == 50 or one.logged("config.loaded")  # a machine may be so slow that the hangup is through
    shop.check([*HttpTarget(http).receipts(), *received(tmp_path / "out")], drained=False)


def test_a_hangup_while_another_drains_is_obeyed_after_it(relay, shop, http, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    http.respond = lambda request: Reply(action=HANG)
    shop.add(100, 50)
    one = relay(shop.config(f'type: http, url: "{http.url}"'))
    wait_until(lambda: len(http.requests) == 50)
    one.configure(shop.config(to_file(first)))
    one.send(signal.SIGHUP)
    wait_until(first.exists)  # that configuration has been read and waits for what is in flight under the old one
    one.configure(shop.config(to_file(second)))
    one.send(signal.SIGHUP)
    http.release()
    wait_until(lambda: len(one.logged("config.loaded")) == 2, 30, "the second configuration to be loaded")
    wait_until(lambda: shop.left() == 0, 30)
    assert one.stop() == 0
    assert (FileTarget(first).count(), FileTarget(second).count()) == (0, 50)
    shop.check([*HttpTarget(http).receipts(), *received(second)])


def test_file_that_cannot_be_opened_anew_is_said_and_waited_for(relay, shop, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    one = relay(shop.config(to_file(folder / "out")))
    shop.add(100, 20)
    wait_until(lambda: shop.left() == 0)
    folder.rename(tmp_path / "away")
    one.configure("sinks: {")
    one.send(signal.SIGHUP)
    wait_until(lambda: one.logged("sink.reopen_failed"))
    (tmp_path / "away").rename(folder)
    shop.add(100, 20)
    wait_until(lambda: shop.left() == 0, 30)
    assert one.stop() == 0
    shop.check(received(folder / "out"))


def test_relay_that_cannot_wait_says_so_and_goes_on(relay, shop, tmp_path):
    one = relay(shop.config(to_file(tmp_path / "out")))
    shop.add(100, 20)
    wait_until(lambda: shop.left() == 0)
    before = resource.prlimit(one.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(one.pid, resource.RLIMIT_NOFILE, (1, before[1]))  # poll(2) takes no more descriptors than that
    shop.add(100, 20)  # wakes nobody: the next poll does
    wait_until(lambda: one.logged("relay.poll_failed"))
    resource.prlimit(one.pid, resource.RLIMIT_NOFILE, before)
    wait_until(lambda: shop.left() == 0)
    assert one.stop() == 0
    shop.check(received(tmp_path / "out"))


def test_hangup_opens_a_file_anew_that_was_moved_away(relay, shop, tmp_path):
    one = relay(shop.config(to_file(tmp_path / "out")))
    shop.add(100, 20)
    wait_until(lambda: shop.left() == 0)
    (tmp_path / "out").rename(tmp_path / "rotated")
    one.send(signal.SIGHUP)
    wait_until(lambda: (tmp_path / "out").exists())
    shop.add(100, 20)
    wait_until(lambda: shop.left() == 0)
    assert one.stop() == 0
    shop.check(received(tmp_path / "rotated", tmp_path / "out"))
    assert FileTarget(tmp_path / "rotated").count() == FileTarget(tmp_path / "out").count() == 100


@pytest.mark.parametrize("stderr", ["a pipe nobody reads", "closed"])
def test_losing_its_log_does_not_end_it(shop, tmp_path, stderr):
    config = tmp_path / "pgcourier.yaml"
    config.write_text(shop.config(to_file(tmp_path / "out"), top="stats_interval: 50ms"))
    command = [binary(), "run", "-c", str(config)]
    if stderr == "closed":
        command = ["sh", "-c", 'exec "$@" 2>&- >&- <&-', "sh", *command]
    process = subprocess.Popen(command, stderr=subprocess.PIPE if stderr != "closed" else None, env=environment())
    try:
        if process.stderr:
            process.stderr.close()
        shop.add(500, 20)
        wait_until(lambda: shop.left() == 0)
        time.sleep(0.3)  # some lines of statistics
        assert process.poll() is None
        process.send_signal(signal.SIGPIPE)
        shop.add(500, 20)
        wait_until(lambda: shop.left() == 0)
        assert process.poll() is None
        process.terminate()
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
    shop.check(received(tmp_path / "out"))


def test_until_empty_ends_when_nothing_is_left(relay, shop, tmp_path):
    shop.add(3000, 100)
    assert relay(shop.config(to_file(tmp_path / "out")), until_empty=True).wait() == 0
    assert shop.left() == 0
    assert relay(shop.config(to_file(tmp_path / "none")), until_empty=True).wait() == 0
