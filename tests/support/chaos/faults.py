"""What each kind of fault in a schedule does to a stage (run.py).

    play(stage, step)       # in a thread of its own: begins it, waits, ends it

A kind is a generator function: it begins the fault, yields for as long as the step lasts, and ends it. It notes with the stage
what may be uncertain afterwards (bounds.py), before it does anything."""

import contextlib
import functools

import psycopg2

from tests.support.chaos import network_faults, relay_faults, sink_faults, table_faults

KINDS = {**relay_faults.KINDS, **table_faults.KINDS, **network_faults.KINDS, **sink_faults.KINDS}


def kind_of(step):
    """The generator function that does it."""
    family, kind = step.kind.split(".")
    if step.kind in KINDS:
        return KINDS[step.kind]
    return functools.partial(network_faults.WAYS[kind], which=family)


def play(stage, step):
    generator = kind_of(step)(stage, step)
    try:
        if step.kind.startswith(("table", "session")):
            with stage.hold("server"):  # a restart that goes on is waited for
                pass
        with contextlib.closing(generator):
            for _ in generator:
                stage.wait(step.lasts_s)
    except (psycopg2.OperationalError, psycopg2.InterfaceError, ProcessLookupError) as error:
        # Another fault was quicker, which has its own note: the server, or the relay, is gone, or somebody has a lock.
        stage.miss(step, error)
    finally:
        stage.over(step)
