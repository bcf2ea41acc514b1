"""Every system call of a short run is made to fail, one in each run, until a run has so few that none is left to fail.
The relay may go on, or end with an exit code of docs/operations.md and a line that says why; then another one finishes
its work. It never crashes or hangs, and the history is right.

Which calls there are is counted, so that a new one has to be dealt with here. A default run makes some of them fail, the
same ones every time; --deep each of them."""

import itertools
import os
import queue
import re
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support import targets
from tests.support.course import NOT_AGAIN, Course
from tests.support.relay import binary
from tests.support.servers import HttpReceiver, free_port
from tests.support.traced import TracedRelay, build_gate, injection

PROBLEMS_MAX = 50
DEEP = os.environ.get("PGCOURIER_DEEP") == "1"
SAMPLE = 3  # a default run takes every third of the calls, others with each sink

# What the kernel may answer. What a caller has to repeat (EINTR, EAGAIN) is among it wherever the call may block.
FILE = ["EIO", "ENOENT", "EACCES"]
DESCRIPTOR = ["EMFILE", "ENOBUFS"]
ERRORS = {
    "access": FILE, "newfstatat": FILE, "fstat": FILE, "stat": FILE, "statx": FILE, "fstatfs": ["EIO"], "statfs": ["EIO"],
    "readlink": FILE, "getcwd": ["ENOENT"], "getdents64": ["EIO"], "lseek": ["EIO"], "ftruncate": ["EIO"],
    "openat": ["EMFILE", *FILE], "close": ["EIO", "EINTR"], "fcntl": ["EINVAL"], "flock": ["ENOLCK", "EINTR", "EAGAIN"],
    "ioctl": ["ENOTTY"], "dup": ["EMFILE"],
    "read": ["EIO", "EINTR"], "pread64": ["EIO", "EINTR"], "readv": ["EIO", "EINTR"],
    "write": ["EIO", "ENOSPC", "EINTR"], "pwrite64": ["EIO", "ENOSPC", "EINTR"], "writev": ["EIO", "ENOSPC", "EINTR"],
    "fsync": ["EIO", "ENOSPC", "EINTR"], "fdatasync": ["EIO", "ENOSPC", "EINTR"],
    "socket": DESCRIPTOR, "socketpair": DESCRIPTOR, "pipe2": ["EMFILE"], "eventfd2": ["EMFILE"], "signalfd4": ["EMFILE"],
    "timerfd_create": ["EMFILE"], "epoll_create1": ["EMFILE"],
    "connect": ["ECONNREFUSED", "ETIMEDOUT", "ENETUNREACH", "EADDRNOTAVAIL"], "bind": ["EADDRINUSE"], "shutdown": ["ENOTCONN"],
    "sendto": ["ECONNRESET", "EPIPE", "EINTR", "EAGAIN"], "sendmsg": ["ECONNRESET", "EPIPE", "EINTR", "EAGAIN"],
    "sendmmsg": ["ECONNREFUSED"],
    "recvfrom": ["ECONNRESET", "ETIMEDOUT", "EINTR", "EAGAIN"], "recvmsg": ["ECONNRESET", "ETIMEDOUT", "EINTR", "EAGAIN"],
    "poll": ["EINTR", "ENOMEM"], "ppoll": ["EINTR", "ENOMEM"], "epoll_ctl": ["ENOMEM"], "epoll_wait": ["EINTR"],
    "setsockopt": ["ENOPROTOOPT", "ENOMEM"], "getsockopt": ["ENOBUFS"], "getsockname": ["ENOBUFS"], "getpeername": ["ENOTCONN"],
    "clone3": ["EAGAIN"], "getrandom": ["ENOSYS", "EINTR"], "prctl": ["EINVAL"], "sysinfo": ["EFAULT"], "uname": ["EFAULT"],
}

# What has nothing to do with sockets and files, or cannot fail.
LEFT_OUT = {
    **dict.fromkeys(["brk", "mmap", "munmap", "mprotect", "mremap", "madvise"],
                    "memory: test_allocations.py and tests/unit/memory/allocation_test.c refuse it"),
    **dict.fromkeys(["futex", "set_robust_list", "rseq", "exit", "set_tid_address"], "what glibc makes threads of"),
    **dict.fromkeys(["rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack"], "fails for wrong arguments only"),
    **dict.fromkeys(["getuid", "geteuid", "getgid", "getegid", "getpid", "gettid", "getppid", "exit_group", "sched_yield",
                     "restart_syscall"], "cannot fail"),
    **dict.fromkeys(["clock_gettime", "clock_nanosleep", "gettimeofday", "sched_getaffinity", "prlimit64"],
                    "fails for wrong arguments only"),
}

COUNT = ["-c"]
# Want of something, which may be over in a moment: no reason for a supervisor never to start the relay again.
SCARCE = {"EMFILE", "ENOBUFS", "ENOMEM", "EAGAIN"}
# The caller has to make the call again. clone3 says the second when there are no threads left.
AGAIN = {"EINTR", "EAGAIN"}


def is_to_be_repeated(call, error):
    return error in AGAIN and call != "clone3"


class TracedCourse(Course):
    """how: strace's arguments."""

    def __init__(self, db, new_target, gate):
        super().__init__(db, new_target)
        self.program, self.gate, self.counts = binary(["release"]), gate, None

    def hurt(self, config, how):
        return TracedRelay(config, self.gate, how, until_empty=True, program=self.program)

    def failed(self, relay):
        if relay.strace_arguments != COUNT:
            return relay.injected()
        self.counts = relay.calls()
        return []

    def uncertain(self, failed):
        """Where nothing has happened but that a call has to be repeated, nothing may come again."""
        return 0 if is_to_be_repeated(failed.call, failed.error) else super().uncertain(failed)


class Sweep:
    """Runs of several courses at a time. What went wrong is in .problems, each with the call that failed."""

    def __init__(self, courses):
        self.courses = queue.SimpleQueue()
        self.pool = ThreadPoolExecutor(len(courses))
        for course in courses:
            self.courses.put(course)
        self.problems, self.outcomes = [], []

    def count(self):
        """{call: times} of a run that nothing fails in."""
        course = self.courses.get()
        outcome = course.run(COUNT)
        assert outcome.code == 0
        self.courses.put(course)
        return course.counts

    def fail(self, call, error, number):
        """One run; False when it made no such call."""
        course = self.courses.get()
        try:
            outcome = course.run(injection(call, error, number))
            assert error not in SCARCE or outcome.code not in NOT_AGAIN, f"exit code {outcome.code}: {outcome.reason}"
            self.outcomes.append((call, error, outcome))
            return bool(outcome.failed)
        except Exception as problem:
            self.problems.append(f"{call} {number}: {error}: {problem}")
            course.start_anew()
            assert len(self.problems) < PROBLEMS_MAX, "\n".join(self.problems)
            return True
        finally:
            self.courses.put(course)

    def fail_all(self, call, errors):
        """The first in the first way, and so on, until two runs are untouched: how many calls of a kind there are differs
        a little from run to run."""
        untouched = 0
        for number, error in zip(itertools.count(1), itertools.cycle(errors)):
            untouched = 0 if self.fail(call, error, number) else untouched + 1
            if untouched == 2:
                return

    def run(self, function, tasks):
        for done in [self.pool.submit(function, *task) for task in tasks]:
            done.result()

    def missed_kinds(self):
        """The share of the kinds of calls that were to fail of which none did; a run more or less makes a call of some kinds."""
        kinds = {call for call, *_ in self.outcomes}
        return 1 - len({call for call, _, outcome in self.outcomes if outcome.failed}) / len(kinds)

    def told(self):
        reached = [(call, error, outcome) for call, error, outcome in self.outcomes if outcome.failed]
        ends = Counter(outcome.code for *_, outcome in reached)
        yield (f"{len(self.outcomes)} runs, {len({call for call, *_ in reached})} kinds of system calls,"
               f" {sum(len(outcome.failed) for *_, outcome in reached)} failed; exit codes {dict(sorted(ends.items()))}")
        yield from sorted({f"{call} {error}: {outcome.code} {re.sub(r'[0-9]{3,}', 'N', outcome.reason)}"
                           for call, error, outcome in reached if outcome.code})


def ways(call, sink):
    """Every call of this kind fails in each of these ways; with Kafka, whose threads make three times as many, in one."""
    return [ERRORS[call]] if sink == "kafka" else [[error] for error in ERRORS[call]]


def sample(counts, sink):
    """Some of the calls, by name: one of each kind that is taken, in one of its ways and in those that have it repeated."""
    taken = [call for call in sorted(counts) if zlib.crc32(f"{sink} {call}".encode()) % SAMPLE == 0]
    for call in taken:
        chance = zlib.crc32(call.encode())
        # Counts differ a little from run to run, and the choice should not.
        among = 1 << max(counts[call].bit_length() - 2, 0)
        again = [error for error in ERRORS[call] if is_to_be_repeated(call, error)]
        for error in dict.fromkeys([ERRORS[call][chance % len(ERRORS[call])], *again]):
            yield call, error, 1 + chance // 16 % among


class NamedHttpTarget(targets.HttpTarget):
    """Its host has to be looked up."""

    def sink(self, relay=None, **options):
        return super().sink(relay, **options).replace("127.0.0.1", "localhost")


@pytest.fixture
def new_targets(request, tmp_path):
    """A function of a sink's name: it returns a function that gives a run, by number, the target that it delivers to."""
    receivers = []

    def for_sink(name):
        number = next(courses)
        if name == "file":
            return lambda run: targets.FileTarget(tmp_path / f"{number}-{run}.jsonl")
        if name == "redis":
            return lambda run: _stream(targets.RedisTarget(request.getfixturevalue("redis")), f"orders-{number}-{run}")
        if name == "kafka":
            broker, topic = request.getfixturevalue("kafka"), f"calls-{number}-{free_port()}"
            broker.create_topic(topic, 4)
            return lambda run: targets.KafkaTarget(broker, topic)
        receivers.append(HttpReceiver().start())
        target = NamedHttpTarget(receivers[-1])
        return lambda run: target

    courses = itertools.count()
    yield for_sink
    for receiver in receivers:
        receiver.close()


def _stream(target, name):
    target.stream, target.queue = name, {"destination": name}
    return target


@pytest.mark.parametrize("sink", ["file", "redis", "http", pytest.param("kafka", marks=pytest.mark.deep)])
def test_the_history_is_right_whichever_system_call_fails(pg, migrated_template, tmp_path, new_targets, sink):
    gate = build_gate(tmp_path)
    databases = [pg.create_database(migrated_template()) for _ in range(4 if DEEP else 2)]
    sweep = Sweep([TracedCourse(db, new_targets(sink), gate) for db in databases])
    counts = {call: times for call, times in sweep.count().items() if call not in LEFT_OUT}
    assert counts.keys() <= ERRORS.keys(), f"say in ERRORS how these may fail: {counts.keys() - ERRORS.keys()}"
    if DEEP:
        sweep.run(sweep.fail_all, [(call, errors) for call in counts for errors in ways(call, sink)])
    else:
        sweep.run(sweep.fail, sample(counts, sink))
    print(*sweep.told(), sep="\n")
    for db in databases:
        db.drop()
    assert not sweep.problems, "\n".join(sweep.problems)
    assert sweep.missed_kinds() <= 0.25, f"nothing was made to fail: {list(sweep.told())}"
