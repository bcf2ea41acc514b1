"""CPU time that processes have used, in seconds."""

import os
import resource

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
TELLS_NS = os.path.exists("/proc/self/schedstat")


def stat(pid):
    """/proc/PID/stat from the third field on: state, parent, ..."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rsplit(")", 1)[1].split()


def of_process(pid):
    """To the nanosecond, where the kernel tells: what is idle uses less than a tick in seconds. Threads that have ended are not in it."""
    if not TELLS_NS:
        return sum(map(int, stat(pid)[11:13])) * TICK_S
    return sum(of_thread(pid, thread) for thread in os.listdir(f"/proc/{pid}/task"))


def of_thread(pid, thread):
    try:
        with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[0]) / 1e9
    except (FileNotFoundError, ProcessLookupError):
        return 0  # it has ended


def of_server(postgres):
    """All that a PostgreSQL has used: the postmaster, its children, and those that have ended. One that ends meanwhile would be
    counted twice or not at all: then again."""
    while True:
        ended = stat(postgres.pid)[13:15]
        used = of_process(postgres.pid) + sum(of_children(postgres.pid))
        if stat(postgres.pid)[13:15] == ended:
            return used + sum(map(int, ended)) * TICK_S


def of_children(parent):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if int(stat(pid)[1]) == parent:
                yield of_process(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue


def of_ended_children():
    """Of the programs that this process has started and seen end."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
