"""The proxy of the fault tests does to a connection what its verbs say: where one did nothing, its tests would pass all the same."""

import asyncio
import socket
import time

import pytest

from tests.support.process import wait_until
from tests.support.proxy import DOWN, UP, Proxy, _Link

PATIENCE_S = 30
SILENCE_S = 0.3  # so long nothing comes


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)
        yield server


@pytest.fixture
def proxy(listener):
    with Proxy(listener.getsockname()[1]) as proxy:
        yield proxy


@pytest.fixture
def connect(proxy, listener):
    """A function: one connection more, as the sockets of its client and of its peer."""
    opened = []

    def make():
        client = socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S)
        peer, _ = listener.accept()
        peer.settimeout(PATIENCE_S)
        opened.extend([client, peer])
        return client, peer

    yield make
    for one in opened:
        one.close()


def receive(one, size):
    """So many bytes, or fewer when it ends before."""
    data = b""
    while len(data) < size and (more := one.recv(size - len(data))):
        data += more
    return data


def is_silent(one):
    one.settimeout(SILENCE_S)
    try:
        return one.recv(1) is None
    except TimeoutError:
        return True
    finally:
        one.settimeout(PATIENCE_S)


def ends(one):
    try:
        return one.recv(1) == b""
    except ConnectionResetError:
        return True


def test_everything_passes_in_both_directions(connect):
    client, peer = connect()
    sent = bytes(range(256)) * 1000
    for one, other in ((client, peer), (peer, client)):
        one.sendall(sent)
        assert receive(other, len(sent)) == sent
    client.close()
    assert ends(peer)


def test_latency_delays_each_chunk(proxy, connect):
    client, peer = connect()
    proxy.latency_s = 0.2
    started = time.monotonic()
    client.sendall(b"ping")
    assert receive(peer, 4) == b"ping"
    peer.sendall(b"pong")
    assert receive(client, 4) == b"pong"
    assert time.monotonic() - started >= 0.4


def test_what_passes_is_counted_for_each_connection(proxy, connect):
    (client, peer), (other, _) = connect(), connect()
    client.sendall(b"ping")
    peer.sendall(b"pong!")
    other.sendall(b"x")
    wait_until(lambda: [proxy.passed(number) for number in range(proxy.connections)] == [{UP: 4, DOWN: 5}, {UP: 1, DOWN: 0}],
               PATIENCE_S, "all to have passed")


def test_slices_are_written_one_by_one(proxy, connect):
    written = []

    class Writer:
        async def drain(self):
            written.append("drained")

        def write(self, data):
            written.append(data)

    proxy.slice_bytes = 3
    asyncio.run(_Link(proxy, Writer(), Writer(), {}, None).send(Writer(), b"12345678"))
    assert written == [b"123", "drained", b"456", "drained", b"78", "drained"]
    client, peer = connect()
    client.sendall(b"12345678")
    assert receive(peer, 8) == b"12345678"


def test_nothing_passes_a_black_hole_until_it_is_healed(proxy, connect):
    client, peer = connect()
    proxy.blackhole()
    client.sendall(b"up")
    peer.sendall(b"down")
    assert is_silent(peer) and is_silent(client)
    proxy.heal()
    assert (receive(peer, 2), receive(client, 4)) == (b"up", b"down")


def test_a_reset_is_one_for_both_sides(proxy, connect):
    for one in (both := connect()):
        one.sendall(b"x")
    for one in both:
        assert receive(one, 1) == b"x"
    proxy.reset()
    for one in both:
        with pytest.raises(ConnectionResetError):
            one.recv(1)


def test_a_cut_ends_what_is_open_and_nothing_else(proxy, connect):
    both = connect()
    for one in both:  # until both have come through, the proxy may not know of the connection yet
        one.sendall(b"x")
    for one in both:
        assert receive(one, 1) == b"x"
    proxy.cut()
    assert all(one.recv(1) == b"" for one in both)
    client, peer = connect()
    client.sendall(b"again")
    assert receive(peer, 5) == b"again"


def test_what_is_down_refuses_until_it_is_up(proxy, connect):
    proxy.down()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S)
    proxy.up()
    client, peer = connect()
    client.sendall(b"x")
    assert receive(peer, 1) == b"x"


@pytest.mark.parametrize("direction", [UP, DOWN])
@pytest.mark.parametrize("size", [1, 7, 70000])
def test_the_next_connection_is_cut_at_its_byte_and_at_no_other(proxy, connect, direction, size):
    trap = proxy.cut_after(size, direction)
    client, peer = connect()
    one, other = (client, peer) if direction == UP else (peer, client)
    sent = bytes(range(251)) * 300
    one.sendall(sent[:size])
    assert receive(other, size) == sent[:size]
    assert not trap.sprung
    one.sendall(b"one more")
    assert ends(other)
    assert trap.sprung
    client, peer = connect()
    client.sendall(sent)
    assert receive(peer, len(sent)) == sent


def test_a_connection_ends_before_a_word_that_is_cut_in_two(proxy, connect):
    trap = proxy.cut_before(b"commit\0", UP, skip=1)
    client, peer = connect()
    client.sendall(b"commit\0 and ")
    assert receive(peer, 12) == b"commit\0 and "
    client.sendall(b"this com")
    assert receive(peer, 8) == b"this com"
    client.sendall(b"mit\0")
    assert ends(peer) and trap.sprung


def test_a_word_makes_it_a_black_hole(proxy, connect):
    trap = proxy.blackhole_before(b"commit", UP)
    client, peer = connect()
    client.sendall(b"begin commit")
    wait_until(lambda: trap.sprung, PATIENCE_S, "the word to come")
    assert is_silent(peer)
    proxy.heal()
    assert receive(peer, 12) == b"begin commit"


def test_what_has_vanished_says_nothing_and_acknowledges_nothing(proxy, connect):
    client, peer = connect()
    client.sendall(b"x")
    assert receive(peer, 1) == b"x"
    proxy.vanish()
    client.sendall(b"up")
    peer.close()
    assert is_silent(client)
    assert unacknowledged(client) == 2


def unacknowledged(one):
    """Bytes in the send queue, as the kernel counts them."""
    local = one.getsockname()[1]
    with open("/proc/net/tcp") as table:
        for line in list(table)[1:]:
            words = line.split()
            if int(words[1].split(":")[1], 16) == local and words[3] == "01":
                return int(words[4].split(":")[0], 16)
    return None
