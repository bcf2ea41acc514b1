"""Faults of what relays deliver to."""

import contextlib
import fcntl
import os
import resource

from tests.support.chaos.bounds import note_break
from tests.support.http_receiver import DROP, HALF, Reply
from tests.support.process import free_port

LATE_S = 33  # later than the sink waits


# ---- an HTTP receiver ----

def http_away(stage, step):
    with stage.hold("peer"):
        note_break(stage, step, "sink", stage.fleet.names(None))
        stage.peer.stop()
        yield
        stage.peer.start()


def http_answers(reply, matches=lambda step, request: True):
    """For as long as the step lasts; it costs nobody a second delivery."""
    def do(stage, step):
        stage.note(step, 0)
        lasting = [True]
        stage.peer.rule(lambda request: lasting and matches(step, request), reply(step))
        yield
        lasting.clear()
    return do


def is_refused(step, request):
    """Every so many'th key."""
    key = request.headers.get("event-key")
    return key is not None and int(key) % int(step.amount) == step.pick % int(step.amount)


def http_answers_some(reply, uncertain):
    """So many requests are answered in that way."""
    def do(stage, step):
        stage.note(step, int(step.amount) if uncertain else 0)
        stage.peer.rule(lambda request: True, reply, times=int(step.amount))
        yield
    return do


# ---- Redis ----

def restarted(end):
    """A server ends as end(server) does it, and comes back when the step is over."""
    def do(stage, step):
        with stage.hold("peer"):
            note_break(stage, step, "sink", stage.fleet.names(None))
            end(stage.peer)
            yield
            stage.peer.start()
    return do


def paused(stage, step):
    with stage.hold("peer"):
        if stage.sink == "kafka":
            note_break(stage, step, "sink", stage.fleet.names(None))
        stage.note(step, 0)
        stage.peer.pause()
        yield
        stage.peer.resume()


def redis_commands(begin, end=()):
    def do(stage, step):
        with stage.hold("peer"), stage.peer.client() as client:
            stage.note(step, 0)
            client.execute_command(*(word.format(ms=int(step.lasts_s * 1000), port=free_port()) for word in begin))
            yield
            if end:
                client.execute_command(*end)
    return do


def redis_hangs_up(stage, step):
    with stage.hold("peer"), stage.peer.client() as client:
        note_break(stage, step, "sink", stage.fleet.names(None))
        client.execute_command("client", "kill", "type", "normal")
    yield


# ---- a file ----

def file_locked(stage, step):
    with stage.hold("peer"), open(stage.target.path, "ab") as file:
        stage.note(step, 0)
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def file_full(stage, step):
    """It may not grow any more."""
    stage.note(step, 0)
    relays = [place.relay for place in (stage.fleet.places if step.who is None else [stage.fleet.places[step.who]])]
    size = os.path.getsize(stage.target.path) if os.path.exists(stage.target.path) else 1 << 20
    limit_size(relays, size)
    yield
    limit_size(relays)


def limit_size(relays, size=None):
    """Of every file that they write to."""
    for relay in relays:
        with contextlib.suppress(ProcessLookupError):
            _, most = resource.prlimit(relay.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(relay.pid, resource.RLIMIT_FSIZE, (most if size is None else size, most))


KINDS = {
    "http.away": http_away,
    "http.slow": http_answers(lambda step: Reply(200, delay_s=step.amount)),
    "http.busy": http_answers(lambda step: Reply(503)),
    "http.refuses_keys": http_answers(lambda step: Reply(500), is_refused),
    "http.rejects": http_answers_some(Reply(422), uncertain=False),
    "http.late": http_answers_some(Reply(200, delay_s=LATE_S), uncertain=True),
    "http.half": http_answers_some(Reply(200, action=HALF), uncertain=True),
    "http.drops": http_answers_some(Reply(action=DROP), uncertain=True),
    "redis.killed": restarted(lambda server: server.kill()),
    "redis.stopped": restarted(lambda server: server.stop()),
    "redis.paused": paused,
    "redis.slow": redis_commands(["client", "pause", "{ms}", "write"]),
    "redis.full": redis_commands(["config", "set", "maxmemory", "1"], ["config", "set", "maxmemory", "0"]),
    "redis.read_only": redis_commands(["replicaof", "127.0.0.1", "{port}"], ["replicaof", "no", "one"]),
    "redis.hangs_up": redis_hangs_up,
    "kafka.killed": restarted(lambda server: server.kill()),
    "kafka.stopped": restarted(lambda server: server.stop()),
    "kafka.paused": paused,
    "file.locked": file_locked,
    "file.full": file_full,
}
