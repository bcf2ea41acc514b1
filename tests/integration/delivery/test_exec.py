"""The exec sink in a whole relay: what a command says is kept, and a command never outlives its claim or its relay."""

import json
import os
import resource
import signal
import time

import pytest

from tests.support.proxy import Proxy
from tests.support.relay import binary, run_command
from tests.support.servers import wait_until
from tests.support.shop import Shop
from tests.support.targets import ExecTarget

SOON_S = 10


@pytest.fixture
def shop(db):
    return Shop(db)


def script(folder, text, **settings):
    """A sink that runs a script, with the folder as its working directory."""
    path = folder / "task"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    settings = {"type": "exec", "command": [str(path)], "directory": str(folder), **settings}
    return ", ".join(f"{name}: {json.dumps(value)}" for name, value in settings.items())


def lives(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def pids_in(path):
    return [int(line) for line in path.read_text().split()] if path.exists() else []


# Runs until `go` is there; notes itself and what it has started.
LONG = "sleep 60 & echo $! >> children; echo $$ >> selves; until [ -e go ]; do sleep 0.01; done; cat >> done"


def running(folder):
    wait_until(lambda: pids_in(folder / "selves"), 30, "the command to run")
    return [*pids_in(folder / "selves"), *pids_in(folder / "children")]


def test_what_a_command_says_of_an_event_that_it_refuses_is_kept(relay, shop, tmp_path):
    shop.add(1, 1)
    one = relay(shop.config(script(tmp_path, "echo 'no such order' >&2; exit 3")), until_empty=True)
    assert one.wait(60) == 0
    reason = f"{tmp_path}/task: exit code 3: no such order"
    assert shop.db.query("select reason from outbox.dead") == [(reason,)]
    assert one.logged("delivery.dead.*exit code 3: no such order")


def test_a_command_gets_what_is_left_of_the_relays_time(relay, shop, tmp_path):
    shop.add(1, 1)
    one = relay(shop.config(script(tmp_path, LONG)))
    running(tmp_path)
    one.send(signal.SIGTERM)
    wait_until(lambda: one.logged("relay.stop"))
    (tmp_path / "go").touch()
    assert one.wait(60) == 0
    assert shop.left() == 0
    assert len((tmp_path / "done").read_text().splitlines()) == 1


def test_a_command_that_takes_longer_is_ended_with_all_it_has_started(relay, shop, tmp_path):
    shop.add(1, 1)
    one = relay(shop.config(script(tmp_path, LONG), top="shutdown_timeout: 100ms"))
    commands = running(tmp_path)
    one.send(signal.SIGTERM)
    assert one.wait(60) == 75
    assert shop.left() == 1
    wait_until(lambda: not any(map(lives, commands)), SOON_S)


def test_nothing_of_a_command_outlives_a_relay_that_is_killed(relay, shop, tmp_path):
    shop.add(1, 1)
    one = relay(shop.config(script(tmp_path, LONG)))
    commands = running(tmp_path)
    os.kill(one.pid, signal.SIGKILL)
    wait_until(lambda: not any(map(lives, commands)), SOON_S)


def test_a_command_whose_claim_is_lost_is_killed(relay, shop, tmp_path):
    """Another relay may run the event at once: here it is the same one."""
    shop.add(1, 1)
    one = relay(shop.config(script(tmp_path, f"trap '' TERM; {LONG}")))
    commands = running(tmp_path)
    shop.db.query("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pgcourier'"
                  " and datname = current_database()")
    wait_until(lambda: not any(map(lives, commands)), SOON_S)
    wait_until(lambda: len(pids_in(tmp_path / "selves")) == 2, 30, "the event to be run again")
    (tmp_path / "go").touch()
    wait_until(lambda: shop.left() == 0)
    assert one.stop() == 0
    assert len((tmp_path / "done").read_text().splitlines()) == 1
    assert shop.attempts() == 0


# The same, after it has noted which commands before it are still there.
BESIDE = f"""for one in $(cat selves children 2>/dev/null); do
    case $(cut -d' ' -f3 /proc/$one/stat 2>/dev/null) in [A-WY]) echo $one >> beside;; esac
done
{LONG}"""


def finish(shop, folder):
    (folder / "go").touch()
    wait_until(lambda: shop.left() == 0, 30, "the event to be settled")
    assert len((folder / "done").read_text().splitlines()) == 1
    assert pids_in(folder / "beside") == []


@pytest.mark.parametrize("duration, owner", [("2s", "name"), ("3s", "backend")])
def test_a_command_does_not_outlive_its_lease(pg, relay, shop, tmp_path, duration, owner):
    """Its relay is cut off from the database, is told nothing, and another one takes over."""
    shop.add(1, 1)
    sink, lease = script(tmp_path, BESIDE), {"ordering": "lease", "lease": f"{{ duration: {duration}, owner: {owner} }}"}
    with Proxy(pg.port) as proxy:
        through = shop.db.dsn.replace(f"port={pg.port}", f"port={proxy.port}")
        victim = relay(shop.config(sink, database=through, **lease))
        commands = running(tmp_path)
        heir = relay(shop.config(sink, **lease))
        proxy.blackhole()
        wait_until(lambda: len(pids_in(tmp_path / "selves")) == 2, 30, "the other relay to take over")
        assert not any(map(lives, commands))
        assert victim.logged("lease.over.*keys=1")
        finish(shop, tmp_path)
        proxy.heal()
        wait_until(lambda: victim.logged("lease.lost"), 30, "the relay to see that it is late")
        assert [victim.stop(), heir.stop()] == [0, 0]


def test_a_command_ends_with_the_backend_that_owns_its_lease(relay, shop, tmp_path):
    """Others may take over at once. Here there are none, and that it was killed is no failed attempt."""
    shop.add(1, 1)
    lease = {"ordering": "lease", "lease": "{ duration: 1h }", "retry": "{ attempts: 1 }"}
    one = relay(shop.config(script(tmp_path, BESIDE), **lease))
    commands = running(tmp_path)
    shop.db.query("select pg_terminate_backend(pid) from pg_stat_activity where pid = (select backend_pid from outbox.parked)")
    wait_until(lambda: len(pids_in(tmp_path / "selves")) == 2, 30, "the event to be run again")
    assert not any(map(lives, commands))
    finish(shop, tmp_path)
    assert one.stop() == 0
    assert shop.attempts() == 0


def test_a_command_whose_lease_is_renewed_in_time_goes_on(relay, shop, tmp_path):
    shop.add(1, 1)
    lease = {"ordering": "lease", "lease": "{ duration: 3s, owner: name }"}
    one = relay(shop.config(script(tmp_path, BESIDE), **lease))
    commands = running(tmp_path)
    shop.db.query("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pgcourier'"
                  " and datname = current_database()")
    since = shop.db.value("select next_at from outbox.parked")
    wait_until(lambda: shop.db.value("select next_at > %s + interval '2 s' from outbox.parked", [since]), 30, "it to be renewed")
    assert all(map(lives, commands))
    finish(shop, tmp_path)
    assert one.stop() == 0


def test_a_program_that_is_away_costs_no_attempts(relay, shop, tmp_path):
    sink = script(tmp_path, "cat >> done")
    one = relay(shop.config(sink))
    shop.add(10, 10)
    wait_until(lambda: shop.left() == 0)
    (tmp_path / "task").rename(tmp_path / "moved")
    shop.add(10, 10)
    wait_until(lambda: one.logged("sink.down"), 30)
    (tmp_path / "moved").rename(tmp_path / "task")
    wait_until(lambda: shop.left() == 0)
    assert one.stop() == 0
    assert shop.attempts() == 0
    assert len((tmp_path / "done").read_text().splitlines()) == 20


def test_a_poisonous_event_of_a_batch_does_not_count_against_its_neighbours(relay, shop, tmp_path):
    events = shop.add(200, 50)
    poisonous = events[100].id
    text = f'cat > in.$$; if grep -q \'^{{"id":{poisonous},\' in.$$; then exit 1; fi; cat in.$$ >> done; rm in.$$'
    one = relay(shop.config(script(tmp_path, text, batch=20)), until_empty=True)
    assert one.wait(60) == 0
    assert shop.db.query("select event_id, attempts from outbox.dead") == [(poisonous, 1)]
    ids = [json.loads(line)["id"] for line in (tmp_path / "done").read_text().splitlines()]
    assert sorted(ids) == [event.id for event in events if event.id != poisonous]


def test_a_busy_key_goes_in_batches_and_in_order(relay, shop, tmp_path):
    events = shop.add(1000, 1)
    target = ExecTarget(tmp_path / "events.jsonl", batch=100)
    started = time.monotonic()
    one = relay(shop.config(target.sink()), until_empty=True)
    assert one.wait(60) == 0
    print(f"{time.monotonic() - started:.1f} s")
    assert [receipt.id for receipt in target.receipts()] == [event.id for event in events]
    shop.check(target.receipts())


UNORDERED = {"ordering": "unordered", "locks": "advisory"}


@pytest.mark.parametrize("queue", [{"ordering": "per_key"}, {"ordering": "lease"}, UNORDERED], ids=lambda queue: queue["ordering"])
def test_relays_share_what_there_is_by_the_places_that_they_have(relay, shop, tmp_path, queue):
    """What the first one has no process for, the second one has."""
    shop.add(4, 4)
    config = shop.config(script(tmp_path, LONG, processes=2), **queue)
    if queue is UNORDERED:
        config = config.replace("key: order_id, ", "")
    relays = []
    for running_then in (2, 4):
        relays.append(relay(config))
        wait_until(lambda: len(pids_in(tmp_path / "selves")) == running_then, 20, f"{running_then} commands to run")
    (tmp_path / "go").touch()
    wait_until(lambda: shop.left() == 0, 60, "the others")
    assert [one.stop() for one in relays] == [0, 0]


def test_what_is_urgent_is_next_where_there_are_few_places(relay, shop, tmp_path):
    """However much waits that is not."""
    shop.db.psql("alter table public.events add priority bigint not null default 0")
    shop.add(100, 100)
    wait = "cat >> order; echo >> order; touch begun; until [ -e go ]; do sleep 0.01; done"
    config = shop.config(script(tmp_path, wait, processes=1), **UNORDERED, oldest_share=0)  # of one place, chance would give it to the oldest now and then
    one = relay(config.replace("key: order_id, ", "priority: priority, "))
    wait_until(lambda: (tmp_path / "begun").exists(), 20, "the first to run")
    urgent = shop.db.value("insert into public.events (status, priority) values ('paid', 1000) returning id")
    (tmp_path / "go").touch()
    wait_until(lambda: shop.left() == 0, 60, "all")
    order = [json.loads(line)["id"] for line in (tmp_path / "order").read_text().splitlines() if line]
    assert order.index(urgent) == 1 and one.stop() == 0


def test_a_relay_may_open_more_than_its_commands_may(relay, shop, tmp_path):
    """As many as the hard limit says. Commands may use select(2), and get what the relay was started with."""
    program = tmp_path / "limited"
    program.write_text(f'#!/bin/sh\nulimit -S -n 200; ulimit -H -n 500\nexec {binary()} "$@"\n')
    program.chmod(0o755)
    shop.add(1, 1)
    one = relay(shop.config(script(tmp_path, "ulimit -S -n > soft; ulimit -H -n > hard")), program=str(program))
    wait_until(lambda: shop.left() == 0)
    assert resource.prlimit(one.pid, resource.RLIMIT_NOFILE) == (500, 500)
    assert ((tmp_path / "soft").read_text(), (tmp_path / "hard").read_text()) == ("200\n", "500\n")
    assert one.stop() == 0


@pytest.mark.parametrize("command, said", [
    ('[/no/such/task, "7"]', "3:3: sinks.out: command: cannot run /no/such/task: No such file or directory"),
    ("task", "3:31: sinks.out.command: a single value stands here; write a list"),
    ("[]", "3:22: sinks.out.command: the list is empty"),
    ("[sh, { a: b }]", "3:22: sinks.out.command.1: a mapping stands here"),
])
def test_a_command_that_cannot_be_run_is_found_by_check_config(tmp_path, command, said):
    path = tmp_path / "pgcourier.yaml"
    path.write_text(f"database: postgresql:///x\nsinks:\n  out: {{ type: exec, command: {command} }}\nqueues: {{ q: {{ sink: out }} }}\n")
    result = run_command("check-config", "-c", str(path))
    assert result.returncode == 78
    assert said in result.stderr
