"""A scriptable HTTP/1.1 receiver that remembers every request.

    with HttpReceiver() as http:
        http.rule(lambda request: request.json()["id"] == 3, Reply(503, headers={"Retry-After": "1"}), times=2)
        http.respond = lambda request: Reply(200, delay_s=0.1)   # what no rule answers
        ... http.url ... http.requests ...

It runs in its own thread, keeps connections alive, and answers a few thousand requests a second. Rules run in that
thread, one at a time, in the order in which the requests were complete."""

import asyncio
import json
import threading
import time
from dataclasses import dataclass, field
from http import HTTPStatus

from tests.support.journal import digest
from tests.support.process import free_port

# What a reply does to its connection.
ANSWER = "answer"
CLOSE = "close"  # answer, then close without saying so
DROP = "drop"  # close without an answer
HALF = "half"  # send half of the answer, then close
HANG = "hang"  # answer at release() or never, and keep the connection


@dataclass
class Reply:
    status: int = 200
    headers: dict = field(default_factory=dict)
    body: bytes = b""
    delay_s: float = 0.0
    action: str = ANSWER
    raw: bytes = None  # these bytes instead of a well-formed answer

    def encode(self):
        if self.raw is not None:
            return self.raw
        try:
            reason = HTTPStatus(self.status).phrase
        except ValueError:
            reason = "Unknown"
        headers = {"Content-Length": str(len(self.body)), **self.headers}
        if self.status in (204, 304) or self.status < 200:
            headers.pop("Content-Length")
        lines = [f"HTTP/1.1 {self.status} {reason}", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + self.body


@dataclass
class Request:
    """One request, as it came."""

    number: int  # in order of receipt, from 0
    connection: int
    method: str
    target: str
    headers: dict  # lower-case name -> value
    body: bytes
    received_at: float  # time.monotonic()
    reply: Reply = None
    answered_at: float = None  # None: nobody was there, or will be, to hear the reply
    hash: str = None  # journal.digest of the body; None when there is none

    def json(self):
        return json.loads(self.body)


OK_REPLY = Reply()
OK = OK_REPLY.encode()


class _Connection(asyncio.Protocol):
    """Reads requests one after the other; the next one waits until the last is answered."""

    def __init__(self, receiver):
        self.receiver = receiver
        self.buffer = bytearray()
        self.transport = None
        self.number = None
        self.busy = False

    def connection_made(self, transport):
        self.transport = transport
        self.number = self.receiver._opened(self)

    def connection_lost(self, _error):
        self.receiver._connections.discard(self)

    def data_received(self, data):
        self.buffer += data
        self._advance()

    def _advance(self):
        while not self.busy:
            request = self._parse()
            if request is None:
                return
            self.receiver._handle(self, request)

    def _parse(self):
        """Takes one whole request off the buffer; None while it is incomplete."""
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return None
        first, *lines = self.buffer[:end].decode("latin-1").split("\r\n")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        if headers.get("expect", "").lower() == "100-continue" and len(self.buffer) == end + 4:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return None
        length = int(headers.get("content-length", 0))
        if len(self.buffer) < end + 4 + length:
            return None
        method, target, _ = first.split(" ", 2)
        body = bytes(self.buffer[end + 4:end + 4 + length])
        del self.buffer[:end + 4 + length]
        return method, target, headers, body

    def send(self, request):
        reply = request.reply
        self.busy = False
        if self.transport.is_closing() or reply.action == DROP:
            self.transport.close()
            return
        request.answered_at = time.monotonic()
        data = reply.encode()
        if reply.action == HALF:
            data = data[:max(1, len(data) // 2)]
        self.transport.write(data)
        if reply.action == ANSWER:
            self._advance()
        else:
            self.transport.close()


class HttpReceiver:
    """HttpReceiver(tls=ssl.SSLContext) speaks HTTPS. start() and stop() keep the port and the requests."""

    def __init__(self, tls=None, keep_bodies=True):
        self.port = free_port()
        self.tls = tls
        self.keep_bodies = keep_bodies
        self.requests = []
        self.respond = None
        self.in_flight = 0
        self.in_flight_peak = 0
        self.connections_opened = 0
        self._rules = []
        self._connections = set()
        self._hanging = []  # of (connection, request)
        self._loop = None
        self._thread = None
        self._server = None

    @property
    def url(self):
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def rule(self, matches, reply, times=None):
        """The first rule that matches(request) and is not used up answers. `reply` is a Reply or a function of the
        request that returns one."""
        self._rules.append([matches, reply, times])

    def reset(self):
        """Forgets the rules and the requests."""
        self._rules.clear()
        self.requests.clear()
        self.respond = None
        self.in_flight_peak = 0

    def start(self):
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True, name="http-receiver")
        self._thread.start()
        if not ready.wait(10) or self._server is None:
            raise OSError(f"the HTTP receiver cannot listen on port {self.port}")
        return self

    def stop(self):
        """Nothing listens any more and open connections are cut."""
        if self._thread:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._thread = None

    close = stop

    def _run(self, ready):
        self._loop = asyncio.new_event_loop()
        try:
            self._server = self._loop.run_until_complete(self._loop.create_server(
                lambda: _Connection(self), "127.0.0.1", self.port, ssl=self.tls, backlog=1024))
            ready.set()
            self._loop.run_forever()
        finally:
            ready.set()
            self._shut_down()

    def _shut_down(self):
        if self._server:
            self._server.close()
            self._server = None
        for connection in list(self._connections):
            connection.transport.abort()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()
        self._connections.clear()
        self._hanging.clear()
        self.in_flight = 0

    def _opened(self, connection):
        self._connections.add(connection)
        self.connections_opened += 1
        return self.connections_opened

    def _handle(self, connection, parsed):
        method, target, headers, body = parsed
        request = Request(len(self.requests), connection.number, method, target, headers, body, time.monotonic())
        reply = self._choose(request)
        request.hash = digest(body) if body else None
        if not self.keep_bodies:
            request.body = None
        request.reply = reply or OK_REPLY
        self.requests.append(request)
        if reply is None:
            request.answered_at = request.received_at
            connection.transport.write(OK)
            return
        connection.busy = True
        self.in_flight += 1
        self.in_flight_peak = max(self.in_flight_peak, self.in_flight)
        if reply.action == HANG:
            self._hanging.append((connection, request))
            return
        if reply.delay_s > 0:
            self._loop.call_later(reply.delay_s, self._finish, connection, request)
        else:
            self._finish(connection, request)

    def release(self, reply=OK_REPLY):
        """Answers what hangs, with 200 or another reply."""
        self._loop.call_soon_threadsafe(self._release, reply)

    def _release(self, reply):
        for connection, request in self._hanging:
            request.reply = reply
            self._finish(connection, request)
        self._hanging.clear()

    def _finish(self, connection, request):
        self.in_flight -= 1
        connection.send(request)

    def _choose(self, request):
        for rule in self._rules:
            matches, reply, times = rule
            if times != 0 and matches(request):
                if times is not None:
                    rule[2] = times - 1
                return reply(request) if callable(reply) else reply
        return self.respond(request) if self.respond else None

    def __enter__(self):
        return self if self._thread else self.start()

    def __exit__(self, *_):
        self.close()
