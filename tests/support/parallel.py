"""Tests in several processes at a time, which pytest-xdist starts and deals the tests out to. Each has servers of its own."""

import contextlib
import fcntl
import os
import signal


def deals_out(config):
    """Whether this process runs no test itself, but has others that do."""
    return config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput")


def stop_the_others():
    """Has the processes that run the tests stop what they have started; they end by themselves."""
    for pid in _children():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def _children():
    """The process ids of what this process has started from its main thread and not waited for."""
    with open(f"/proc/{os.getpid()}/task/{os.getpid()}/children") as file:
        return [int(pid) for pid in file.read().split()]


@contextlib.contextmanager
def room(config, alone):
    """While it is held, nobody else holds it `alone`; and nobody else at all when we do. It is asked for at a door, so that
    who waits to be alone is not overtaken for ever. Locks end with their process."""
    if not hasattr(config, "workerinput"):
        yield
        return
    shared = os.path.dirname(config.getoption("basetemp"))  # each process has a folder in it
    with open(os.path.join(shared, "door"), "w") as door, open(os.path.join(shared, "room"), "w") as inside:
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(inside, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        yield
