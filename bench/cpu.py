"""CPU time that processes have used, in seconds."""

import os
import resource

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def stat(pid):
    """/proc/PID/stat from the third field on: state, parent, ..."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rsplit(")", 1)[1].split()


def of_process(pid):
    return sum(map(int, stat(pid)[11:13])) * TICK_S


def of_server(postgres):
    """All that a PostgreSQL has used: the postmaster, its children, and those that have ended. One that ends meanwhile would be
    counted twice or not at all: then again."""
    while True:
        before = stat(postgres.pid)[11:15]
        ticks = sum(map(int, before)) + sum(ticks_of_children(postgres.pid))
        if stat(postgres.pid)[13:15] == before[2:]:
            return ticks * TICK_S


def ticks_of_children(parent):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            facts = stat(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(facts[1]) == parent:
            yield sum(map(int, facts[11:13]))


def of_ended_children():
    """Of the programs that this process has started and seen end."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
