"""A server that speaks as much of Redis' protocol as a script tells it to, and remembers what it took.

    with FakeRedis() as redis:
        redis.answer = lambda command: Answer(b"-LOADING loading the dataset\\r\\n", taken=False)   # None: as a real one would
        ... redis.url ... redis.entries ...

It answers one command after the other, as the real one does: a late answer holds up those behind it. The script runs in the
server's own thread."""

import asyncio
import contextlib
import threading
from dataclasses import dataclass

from tests.support.history import Receipt
from tests.support.journal import digest
from tests.support.process import free_port


@dataclass
class Answer:
    raw: bytes = b"$3\r\n0-1\r\n"
    taken: bool = True  # the command is carried out
    delay_s: float = 0.0
    close: bool = False  # after the answer, which may be empty or half

    def told(self):
        """What the history check is to think of it: only a whole answer in time is one."""
        if not self.taken:
            return "away"
        if self.raw != Answer.raw or self.close:
            return "silent"
        return "late" if self.delay_s else "ack"


GREETINGS = {b"PING": b"+PONG\r\n", b"AUTH": b"+OK\r\n", b"SELECT": b"+OK\r\n"}


class FakeRedis:
    def __init__(self):
        self.port = free_port()
        self.answer = None
        self.entries = []  # (fields, answer) of every XADD
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True, name="fake-redis")

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}/0"

    async def _serve(self, reader, writer):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                command = await self._read(reader)
                answer = self._choose(command)
                if answer.delay_s:
                    await asyncio.sleep(answer.delay_s)
                writer.write(answer.raw)
                await writer.drain()
                if answer.close:
                    break
        writer.close()

    async def _read(self, reader):
        """One command: an array of bulk strings."""
        words = int((await reader.readuntil(b"\r\n"))[1:])
        command = []
        for _ in range(words):
            size = int((await reader.readuntil(b"\r\n"))[1:])
            command.append((await reader.readexactly(size + 2))[:-2])
        return command

    def _choose(self, command):
        greeting = GREETINGS.get(command[0].upper())
        answer = self.answer(command) if self.answer and not greeting else None
        if answer is None:
            answer = Answer(greeting) if greeting else Answer()
        if command[0].upper() == b"XADD":
            self.entries.append((fields(command), answer))
        return answer

    def start(self):
        self._thread.start()
        asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1", self.port), self._loop).result(10)
        return self

    def _run(self):
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _finish(self):
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def close(self):
        asyncio.run_coroutine_threadsafe(self._finish(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.close()


def fields(command):
    """{name: value} of XADD STREAM * NAME VALUE ..."""
    pairs = command[command.index(b"*") + 1:]
    return dict(zip(pairs[::2], pairs[1::2]))


class FakeRedisTarget:
    """Where relays deliver to; see targets.py."""

    def __init__(self, server):
        self.server = server
        self.queue = {"destination": "orders"}

    def sink(self, relay=None, **options):
        settings = {"type": "redis", "url": f'"{self.server.url}"', **options}
        return ", ".join(f"{name}: {value}" for name, value in settings.items())

    def receipts(self):
        return [Receipt(int(entry[b"id"]), entry[b"key"].decode(), answer.told(), hash=digest(entry[b"payload"]))
                for entry, answer in list(self.server.entries)]

    def count(self):
        return len(self.server.entries)
