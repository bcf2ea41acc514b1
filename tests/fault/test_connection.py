"""A proxy between relay and PostgreSQL breaks connections at the worst places: the rows tell what was committed."""

import os
import struct
import time

import pytest

from tests.support.fault_run import FaultRun
from tests.support.proxy import DOWN, UP, Proxy
from tests.support.servers import Reply, wait_until
from tests.support.shop import Shop
from tests.support.targets import FileTarget, HttpTarget

DEEP = os.environ.get("PGCOURIER_DEEP") == "1"

# As they stand on the wire: the statement in a Parse message, the tag in a CommandComplete.
COMMIT_SENT, COMMIT_ANSWERED = b"commit\0", b"COMMIT\0"


@pytest.fixture
def proxy(pg):
    with Proxy(pg.port) as proxy:
        yield proxy


def through(proxy, db):
    """The database's connection string, by way of the proxy."""
    return db.dsn.replace(f"port={db.server.port}", f"port={proxy.port}")


@pytest.fixture
def run(relay, db, tmp_path):
    return FaultRun(relay, Shop(db, orders=200), FileTarget(tmp_path / "events.jsonl"))


PLACES = {"before it is sent": (COMMIT_SENT, UP), "when it is sent and not answered": (COMMIT_ANSWERED, DOWN)}


def start(run, proxy, **options):
    """A relay behind the proxy; without a database at its start it would end, so it is left alone until it runs."""
    one = run.start(database=through(proxy, run.db), **options)
    wait_until(lambda: one.logged("relay.start"), 30, "the relay to start")
    return one


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("prepared", ["auto", "off"])
def test_a_connection_that_breaks_at_commit_costs_one_relay_nothing(run, proxy, place, prepared):
    """It knows what was acked, and settles that and no more, whether the rows are still there or not."""
    start(run, proxy, top=f"prepared: {prepared}", connections=1, keys_per_claim=8, max_events_per_key=4)
    traps = [proxy.cut_before(*PLACES[place]) for _ in range(4)]
    run.add(600)
    assert run.finish() == 0
    assert all(trap.sprung for trap in traps)
    run.no_failures()


@pytest.mark.parametrize("place", PLACES)
def test_connections_that_break_at_commit_cost_other_relays_what_was_in_flight(run, proxy, place):
    for _ in range(3):
        start(run, proxy, keys_per_claim=8, max_events_per_key=4)
    traps = [proxy.cut_before(*PLACES[place]) for _ in range(4)]
    run.harm()
    run.add(1500)
    run.finish(lost_claims=True)
    assert all(trap.sprung for trap in traps)


def break_and_work(run, proxy):
    """Ends all connections; those that come next serve ten events more."""
    proxy.cut()
    run.add(10, keys=5)
    run.wait_until_empty()


def exchange(run, proxy):
    """How many bytes that takes of the connection that has most of them, by direction: the least of some, as one that waits asks
    more often."""
    measured = []
    for _ in range(4):
        made = proxy.connections
        break_and_work(run, proxy)
        measured.append([proxy.passed(number) for number in range(made, proxy.connections)])
    return {direction: min(max(passed[direction] for passed in each) for each in measured) for direction in (UP, DOWN)}


def test_a_connection_may_break_at_any_byte(run, proxy):
    """Of what the server says, or the relay, from the first byte of the handshake on."""
    start(run, proxy, connections=1)
    whole = exchange(run, proxy)
    for direction in (UP, DOWN):
        for size in [0, 1, 9, *range(61, whole[direction], 37 if DEEP else whole[direction] // 12)]:
            # One that claims and one that settles beside it: whichever comes first.
            traps = [proxy.cut_after(size, direction) for _ in range(2)]
            break_and_work(run, proxy)
            wait_until(lambda traps=traps: any(trap.sprung for trap in traps), 30, f"an end at {direction} {size} of {whole}")
            proxy.forget()
    assert run.finish() == 0


@pytest.mark.parametrize("place", PLACES)
def test_silence_is_waited_out(run, proxy, place):
    """Nothing is lost on the way, it only takes long: nobody is told, and nothing is sent twice."""
    start(run, proxy, top="prepared: off", connections=1, keys_per_claim=8, max_events_per_key=4)
    for _ in range(2):
        trap = proxy.blackhole_before(*PLACES[place])
        run.add(300)
        wait_until(lambda trap=trap: trap.sprung, 30, "COMMIT")
        run.wait_for_silence()
        assert run.shop.left() > 0
        proxy.heal()
    assert run.finish() == 0


@pytest.mark.parametrize("way", ["slow", "in small pieces", "reset", "refused"])
def test_a_bad_network_costs_nothing_but_time(run, proxy, way):
    if way == "slow":
        proxy.latency_s = 0.03
    if way == "in small pieces":
        proxy.slice_bytes = 5
    run.add(1500)
    start(run, proxy, keys_per_claim=16, max_events_per_key=4)
    run.wait_for(300)
    if way == "reset":
        for share in (400, 600, 800):
            run.wait_for(share)
            proxy.reset()
    if way == "refused":
        proxy.down()
        run.wait_for_log("database.down|database.unreachable")
        proxy.up()
    assert run.finish() == 0
    run.no_failures()


# ---- a peer that is gone without a word ----

def keepalive(local_port, remote_port):
    """In how many seconds the kernel asks the other end of a connection whether it is there; None: it is about to, or
    waits for an acknowledgement."""
    with open("/proc/net/tcp") as table:
        for line in list(table)[1:]:
            words = line.split()
            if [int(word.split(":")[1], 16) for word in words[1:3]] == [local_port, remote_port] and words[3] == "01":
                kind, ticks = words[5].split(":")
                return int(ticks, 16) / os.sysconf("SC_CLK_TCK") if kind == "02" else None
    return None


def test_both_ends_ask_whether_the_other_is_there(relay, db, http, proxy):
    """Every 30 s. The kernel's default is two hours, for which a dead relay's keys would stay locked."""
    run = FaultRun(relay, Shop(db), HttpTarget(http))
    http.respond = lambda request: Reply(200, delay_s=3600)
    run.add(20, keys=20)
    one = start(run, proxy, latency="1s", poll="{ max: 1s }")
    wait_until(lambda: http.in_flight == 20, 60, "the deliveries to be under way")

    def all_ask():
        ports = proxy.ports()
        waits = [keepalive(client, proxy.port) for client, _ in ports] + [keepalive(db.server.port, peer) for _, peer in ports]
        return len(ports) >= 2 and all(wait is not None and wait <= 31 for wait in waits)

    wait_until(all_ask, 30, "a keepalive within 30 s on every connection")
    one.kill()


@pytest.mark.deep
def test_the_keys_of_a_relay_that_is_gone_without_a_word_are_free_within_a_minute(relay, db, http, proxy):
    """Its packets and those to it vanish, as when its machine loses power."""
    run = FaultRun(relay, Shop(db), HttpTarget(http))
    http.rule(lambda request: True, Reply(200, delay_s=3600), times=20)
    run.add(40, keys=20)
    first = start(run, proxy)
    wait_until(lambda: http.in_flight == 20, 60, "the deliveries to be under way")
    run.fault("a relay is gone without a word", in_flight=20, relay=first)
    proxy.vanish()
    started = time.monotonic()
    second = run.start()
    run.wait_until_empty(90)
    print(f"{time.monotonic() - started:.0f} s")
    first.kill()
    assert second.stop() == 0
    run.finish()


@pytest.mark.deep
@pytest.mark.parametrize("word", [b"client_encoding", b"pg_class", b"outbox"])
def test_a_server_that_falls_silent_at_the_start_is_given_up(run, proxy, word):
    """It has let the relay log in. SIGTERM would not end it then: the relay looks for signals in its loop."""
    trap = proxy.blackhole_before(word, UP)
    one = run.start(database=through(proxy, run.db))
    assert one.wait(90) == 75
    assert trap.sprung
    assert one.logged(r"^pgcourier: .*: the database gave no answer within 30 s$")
