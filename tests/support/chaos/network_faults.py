"""What a network does between relays and PostgreSQL ("database") or their sink ("sink"), by the verbs of proxy.py."""

from tests.support.chaos.bounds import note_break, one_connection
from tests.support.proxy import DOWN, UP


def ways(function):
    """A kind of fault of the proxies that the step is about, which nobody else touches meanwhile."""
    def do(stage, step, which):
        numbers = range(len(stage.fleet.places)) if step.who is None else [step.who]
        with stage.hold(*(f"{which} {number}" for number in numbers)):
            yield from function(stage, step, which, stage.fleet.proxies(which, step.who))
    return do


@ways
def network_latency(stage, step, _which, proxies):
    stage.note(step, 0)
    for proxy in proxies:
        proxy.latency_s = step.amount
    yield
    for proxy in proxies:
        proxy.latency_s = 0.0


@ways
def network_slice(stage, step, _which, proxies):
    stage.note(step, 0)
    for proxy in proxies:
        proxy.slice_bytes = int(step.amount)
    yield
    for proxy in proxies:
        proxy.slice_bytes = 0


@ways
def network_silence(stage, step, which, proxies):
    """Nothing passes, and then all of it does."""
    if which == "sink" and stage.sink == "kafka":  # its sink does not wait that long
        note_break(stage, step, which)
    stage.note(step, 0)
    for proxy in proxies:
        proxy.blackhole()
    yield
    for proxy in proxies:
        proxy.heal()


@ways
def network_swallow(stage, step, which, proxies):
    """Nothing passes, nor ever will."""
    note_break(stage, step, which)
    for proxy in proxies:
        proxy.blackhole()
    yield
    for proxy in proxies:
        proxy.cut()
        proxy.heal()


@ways
def network_reset(stage, step, which, proxies):
    note_break(stage, step, which)
    for proxy in proxies:
        proxy.reset()
    yield


@ways
def network_refuse(stage, step, which, proxies):
    note_break(stage, step, which)
    for proxy in proxies:
        proxy.down()
    yield
    for proxy in proxies:
        proxy.up()


@ways
def network_cut(stage, step, which, proxies):
    """All connections end, and the next one again, at some byte."""
    note_break(stage, step, which)
    for name in stage.fleet.names(step.who):
        stage.note(step, one_connection(which), name)
    traps = [(proxy, proxy.cut_after(int(step.amount), DOWN if step.pick % 2 else UP)) for proxy in proxies]
    for proxy in proxies:
        proxy.cut()
    yield
    for proxy, trap in traps:
        proxy.forget()
        if not trap.sprung:  # it must not lie in wait for longer than is noted
            note_break(stage, step, which)
            proxy.cut()


def database_commit_lost(stage, step):
    """A connection each ends before its COMMIT, or before the answer to that."""
    numbers = range(len(stage.fleet.places)) if step.who is None else [step.who]
    with stage.hold(*(f"database {number}" for number in numbers)):
        for name in stage.fleet.names(step.who):
            stage.note(step, one_connection("database"), name)
        proxies = stage.fleet.proxies("database", step.who)
        for proxy in proxies:
            proxy.cut_before(*((b"COMMIT\0", DOWN) if step.pick % 2 else (b"commit\0", UP)))
        yield
        for proxy in proxies:
            proxy.forget()


WAYS = {"latency": network_latency, "slice": network_slice, "silence": network_silence, "swallow": network_swallow,
        "reset": network_reset, "cut": network_cut, "refuse": network_refuse}

KINDS = {"database.commit_lost": database_commit_lost}
