"""A TCP proxy that does to connections what networks do, between a relay and any of its peers.

    with Proxy(pg.port) as proxy:
        ... a relay with proxy.port in its connection string ...
        proxy.latency_s = 0.05           # every chunk comes so much later
        proxy.slice_bytes = 1            # chunks are sent in pieces of so many bytes
        proxy.blackhole(); proxy.heal()  # nothing passes, and nobody is told; then everything goes on
        proxy.reset()                    # every open connection ends by RST
        proxy.down(); proxy.up()         # connections are refused
        proxy.cut_after(100, DOWN)       # the next connection that is made ends after 100 bytes from the peer
        proxy.cut_before(b"commit", UP)  # the connection ends just before those bytes are passed on; each trap, once
        proxy.blackhole_before(b"commit", UP)
        proxy.passed(0)[UP]              # bytes of the first of proxy.connections, so far
        proxy.vanish()                   # as if both sides' other end had lost power: not even packets are acknowledged

A peer that tells its clients where to connect to (Kafka's advertised.listeners, Redis Cluster) must be told to name the
proxy. The proxy runs in a thread of its own; all methods may be called from any other."""

import asyncio
import contextlib
import ctypes
import socket
import struct
import threading
from dataclasses import dataclass

from tests.support.process import free_port

UP = "up"  # from the relay to its peer
DOWN = "down"
CHUNK = 1 << 16
WAIT_S = 10

# A socket filter of one instruction, "return 0": the kernel drops every packet before TCP sees it.
DROP_ALL = struct.pack("HBBI", 0x06, 0, 0, 0)
SO_ATTACH_FILTER = 26


@dataclass
class Trap:
    """Ends the connection before `pattern` is passed on, or makes the proxy a black hole; at `budget` bytes when there is no
    pattern."""

    direction: str
    pattern: bytes = b""
    budget: int = 0
    hold: bool = False
    skip: int = 0  # occurrences of `pattern` that pass first
    sprung: bool = False


class _Link:
    """One connection through the proxy."""

    def __init__(self, proxy, client, peer, passed, budget):
        self.proxy = proxy
        self.writers = {UP: peer, DOWN: client}
        self.passed = passed
        self.tail = {UP: b"", DOWN: b""}  # too short for a pattern, so that one across two chunks is found
        self.budget = budget
        self.silent = False  # for good

    def end(self, reset=False):
        for writer in self.writers.values():
            if reset:
                with contextlib.suppress(OSError):
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    def deafen(self):
        program = ctypes.create_string_buffer(DROP_ALL)
        for writer in self.writers.values():
            writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(program)))

    async def pump(self, reader, direction):
        writer = self.writers[direction]
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await self.proxy._open.wait()
                if self.silent:
                    await asyncio.Event().wait()
                if self.proxy.latency_s:
                    await asyncio.sleep(self.proxy.latency_s)
                allowed = self.allowed(data, direction)
                await self.proxy._open.wait()
                await self.send(writer, data[:allowed])
                self.passed[direction] += allowed
                if allowed < len(data):
                    break
        if not writer.is_closing():
            with contextlib.suppress(OSError):
                await writer.drain()
        self.end()

    async def send(self, writer, data):
        size = self.proxy.slice_bytes or max(1, len(data))
        for at in range(0, len(data), size):
            writer.write(data[at:at + size])
            await writer.drain()
            if self.proxy.slice_bytes:
                await asyncio.sleep(0)

    def allowed(self, data, direction):
        """How many bytes of it may pass; fewer than there are: then the connection ends."""
        if self.budget and self.budget.direction == direction and self.passed[direction] + len(data) > self.budget.budget:
            self.budget.sprung = True
            return self.budget.budget - self.passed[direction]
        passed = len(self.tail[direction])
        text = self.tail[direction] + data
        self.tail[direction] = text[-self.proxy._longest_pattern:] if self.proxy._longest_pattern else b""
        for trap in self.proxy._traps:
            at = -1 if trap.sprung or trap.direction != direction else text.find(trap.pattern, max(0, passed - len(trap.pattern) + 1))
            if at >= 0 and trap.skip > 0:
                trap.skip -= 1
            elif at >= 0:
                trap.sprung = True
                if not trap.hold:
                    return max(0, at - (len(text) - len(data)))
                self.proxy._open.clear()
                break
        return len(data)


class Proxy:
    """Proxy(port) listens on .port and passes on to `port` of this machine."""

    def __init__(self, peer_port):
        self.peer_port = peer_port
        self.port = free_port()
        self.latency_s = 0.0
        self.slice_bytes = 0
        self.connections = 0
        self._links = set()
        self._passed = []  # a dict for each connection, in the order they were made
        self._traps = []
        self._budgets = []
        self._longest_pattern = 0
        self._loop = asyncio.new_event_loop()
        self._open = None
        self._server = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="proxy")

    # --- verbs ---

    def blackhole(self):
        self._call(self._shut)

    def heal(self):
        self._call(self._unshut)

    def vanish(self):
        """For good; connections that are made later are not concerned."""
        self._call(self._vanish)

    def fall_silent(self):
        """The connections there are: whatever comes is taken, and nothing passes. New ones work."""
        self._call(self._fall_silent)

    def reset(self):
        self._call(self._end_all, True)

    def cut(self):
        """Every open connection ends, politely."""
        self._call(self._end_all, False)

    def down(self):
        self._call(self._down)

    def up(self):
        self._call(self._up)

    def cut_after(self, size, direction):
        """Returns the Trap, whose `sprung` says whether it came to that."""
        trap = Trap(direction, budget=size)
        self._budgets.append(trap)
        return trap

    def cut_before(self, pattern, direction, skip=0):
        return self._set(Trap(direction, pattern, skip=skip))

    def blackhole_before(self, pattern, direction):
        return self._set(Trap(direction, pattern, hold=True))

    def _set(self, trap):
        self._longest_pattern = max(self._longest_pattern, len(trap.pattern) - 1)
        self._traps.append(trap)
        return trap

    def forget(self):
        """The traps that have not sprung."""
        self._traps.clear()
        self._budgets.clear()

    def ports(self):
        """(the client's port, the port from which the proxy talks to the peer) of every open connection."""
        return [(link.writers[DOWN].get_extra_info("peername")[1], link.writers[UP].get_extra_info("sockname")[1])
                for link in list(self._links)]

    def passed(self, number):
        """How many bytes the number'th connection has had so far, by direction."""
        return dict(self._passed[number])

    # --- what they do, in the proxy's thread ---

    async def _shut(self):
        self._open.clear()

    async def _unshut(self):
        self._open.set()

    async def _fall_silent(self):
        for link in self._links:
            link.silent = True

    async def _vanish(self):
        for link in self._links:
            link.deafen()
            link.silent = True

    async def _end_all(self, reset):
        for link in list(self._links):
            link.end(reset)

    async def _down(self):
        self._server.close()
        await self._end_all(reset=False)

    async def _up(self):
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, backlog=512)

    async def _accept(self, reader, writer):
        self.connections += 1
        self._passed.append({UP: 0, DOWN: 0})
        passed = self._passed[-1]
        try:
            peer_reader, peer_writer = await asyncio.open_connection("127.0.0.1", self.peer_port)
        except OSError:
            writer.transport.abort()
            return
        link = _Link(self, writer, peer_writer, passed, self._budgets.pop(0) if self._budgets else None)
        self._links.add(link)
        await asyncio.gather(link.pump(reader, UP), link.pump(peer_reader, DOWN))
        self._links.discard(link)

    # --- the thread ---

    def _call(self, function, *arguments):
        asyncio.run_coroutine_threadsafe(function(*arguments), self._loop).result(WAIT_S)

    def _run(self):
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def start(self):
        self._thread.start()

        async def make():
            self._open = asyncio.Event()
            self._open.set()
            await self._up()

        self._call(make)
        return self

    async def _finish(self):
        await self._down()
        self._open.set()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def close(self):
        if self._thread.is_alive():
            self._call(self._finish)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.close()
