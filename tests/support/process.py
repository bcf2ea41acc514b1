"""Child processes that never outlive the program that started them.

A test run may be interrupted at any point, so three nets lie under each other: every server is a context manager;
what is still up at exit is stopped by atexit; and the kernel ends a child whose parent was killed (setpriv
--pdeathsig).
"""

import atexit
import collections
import contextlib
import fcntl
import functools
import os
import pwd
import queue
import random
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

CLAIMED_MAX = 2000  # ports; more than are in use at a time

_open_servers = []
_claimed = collections.deque()


class ServerError(Exception):
    """A server did not start, answer or stop; the text ends with the tail of its log."""


def wait_until(condition, timeout_s=30.0, what="the condition", interval_s=0.01):
    """Polls until condition() is true and returns its value; raises TimeoutError after timeout_s. What takes seconds is asked
    after ever more seldom, down to every fifth interval."""
    begun = time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        waited_s = time.monotonic() - begun
        if waited_s >= timeout_s:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        time.sleep(max(interval_s, min(5 * interval_s, waited_s / 20)))


def stands_still(pid):
    """Stopped, or ended and not waited for."""
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0] in "TZ"


@functools.cache
def _ports():
    """A file with a byte for each port, which the tests that run on this machine lock."""
    return os.open(f"/tmp/pgcourier-tests-{os.geteuid()}.ports", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _claim_port(port):
    """Whether the port is ours from now on. A process is not kept out by its own locks."""
    if port in _claimed:
        return False
    with contextlib.suppress(BlockingIOError, PermissionError):
        fcntl.lockf(_ports(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        _claimed.append(port)
        if len(_claimed) > CLAIMED_MAX:
            fcntl.lockf(_ports(), fcntl.LOCK_UN, 1, _claimed.popleft())
        return True
    return False


def free_port():
    """A loopback port that nobody listens on. It is taken from below the ephemeral range: a server that is down for
    a while must find its port again, not some client's outgoing connection on it, nor a server of other tests beside these."""
    while True:
        port = random.SystemRandom().randrange(12000, 32000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                if _claim_port(port):
                    return port


def accepts(port):
    """True when something listens on the loopback port."""
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0


def unprivileged_user():
    """The account for servers that refuse to run as root; None when we are not root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise ServerError("no unprivileged account: PostgreSQL refuses to run as root and neither postgres nor nobody exists")


def find_program(name, *folders):
    """The path of a program, also where Debian keeps it out of PATH."""
    path = os.pathsep.join([*folders, os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    found = shutil.which(name, path=path)
    if not found:
        raise ServerError(f"{name} is not installed: run ./dev setup")
    return found


def as_user(command, user, death_signal="KILL"):
    """The command line that runs `command` as `user` and has the kernel signal it when its parent dies."""
    prefix = [find_program("setpriv"), "--pdeathsig", death_signal]
    if user:
        group = str(pwd.getpwnam(user).pw_gid)
        prefix += ["--reuid", user, "--regid", group, "--clear-groups"]
    return [*prefix, *command]


class _Spawner:
    """Starts every child from one thread that lives as long as the program: the kernel sends the parent-death signal
    when the *thread* that forked ends, so a server started by a short-lived thread would die with it."""

    def __init__(self):
        self._requests = queue.SimpleQueue()
        self._thread = None
        self._lock = threading.Lock()

    def popen(self, *args, **kwargs):
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, daemon=True, name="spawner")
                self._thread.start()
        reply = queue.SimpleQueue()
        self._requests.put((reply, args, kwargs))
        child, error = reply.get()
        if error:
            raise error
        return child

    def _serve(self):
        while True:
            reply, args, kwargs = self._requests.get()
            try:
                reply.put((subprocess.Popen(*args, **kwargs), None))
            except Exception as error:  # handed to the caller, whatever it is
                reply.put((None, error))


_spawner = _Spawner()


class Process:
    """One child with its output in a log file. Signals go to this process alone."""

    def __init__(self, command, log_path, user=None, cwd=None, env=None, death_signal="KILL"):
        self.log_path = log_path
        with open(log_path, "ab") as log:
            self.popen = _spawner.popen(as_user(command, user, death_signal), stdin=subprocess.DEVNULL, stdout=log,
                                        stderr=log, cwd=cwd or "/", env=env, start_new_session=True)
        self.pid = self.popen.pid
        self.told_to_pause = False

    @property
    def returncode(self):
        return self.popen.poll()

    @property
    def running(self):
        return self.popen.poll() is None

    def send(self, number):
        if self.running:
            self.popen.send_signal(number)
        if number in (signal.SIGSTOP, signal.SIGCONT):
            self.told_to_pause = number == signal.SIGSTOP

    def wait(self, timeout_s=10.0):
        """Returns the moment it ends, which a bench measures: subprocess, given a limit, looks every 50 ms only."""
        if self.running:
            with open(os.pidfd_open(self.pid), "rb", buffering=0) as ended:
                poll = select.poll()
                poll.register(ended, select.POLLIN)
                if not poll.poll(timeout_s * 1000):
                    raise subprocess.TimeoutExpired(self.popen.args, timeout_s)
        return self.popen.wait()

    def end(self, number=signal.SIGTERM, timeout_s=10.0):
        """Sends the signal and waits; SIGKILL after timeout_s. A paused process is woken by it, and does nothing before.

        No other one is: SIGCONT takes back a stop that is under way, and LeakSanitizer, which stops a process that ends, would
        wait for it for ever."""
        if self.running:
            paused = self.is_paused()
            self.send(number)
            if paused:
                self.send(signal.SIGCONT)
        try:
            return self.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            return self.popen.wait()

    def is_paused(self):
        if self.told_to_pause:
            return True
        try:
            with open(f"/proc/{self.popen.pid}/stat") as file:
                return file.read().rpartition(")")[2].split()[0] == "T"
        except FileNotFoundError:
            return False

    def log_tail(self, lines=30):
        with open(self.log_path, errors="replace") as log:
            return "".join(log.readlines()[-lines:])


class Server:
    """What all servers share: a private folder, start and stop, pause and resume, and no trace afterwards.

    Subclasses define _launch() -> Process and _answers() -> bool, and may override the signals."""

    name = "server"
    stop_signal = signal.SIGTERM
    start_timeout_s = 60.0
    stop_timeout_s = 30.0
    user = None  # the account that owns the folder

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix=f"pgcourier-{self.name}-")
        self.log_path = os.path.join(self.folder, "log")
        self.process = None
        open(self.log_path, "w").close()
        if self.user:
            for path in (self.folder, self.log_path):
                shutil.chown(path, self.user)
        _open_servers.append(self)

    def start(self):
        """Starts the server, on the same ports as before, and returns when it answers."""
        assert not self.running, f"{self.name} runs already"
        self.process = self._launch()
        try:
            wait_until(lambda: not self.process.running or self._answers(), self.start_timeout_s, f"{self.name} to start")
        except TimeoutError as error:
            raise ServerError(f"{error}\n{self.process.log_tail()}") from None
        if not self.process.running:
            raise ServerError(f"{self.name} exited with {self.process.returncode} at its start\n{self.process.log_tail()}")
        return self

    @property
    def running(self):
        return self.process is not None and self.process.running

    @property
    def pid(self):
        return self.process.pid

    def stop(self):
        """An orderly stop; start() brings it back with its data."""
        if self.process:
            self.process.end(self.stop_signal, self.stop_timeout_s)

    def kill(self):
        if self.process:
            self.process.end(signal.SIGKILL)

    def pause(self):
        """The process stands still; its connections stay open and nothing answers."""
        self.process.send(signal.SIGSTOP)

    def resume(self):
        self.process.send(signal.SIGCONT)

    def close(self):
        """Stops it for good and removes its folder."""
        if self in _open_servers:
            _open_servers.remove(self)
        try:
            self.stop()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self if self.running else self.start()

    def __exit__(self, *_):
        self.close()


def open_servers():
    """Those that have not been closed; they may be down."""
    return list(_open_servers)


@atexit.register
def close_all_servers():
    for server in reversed(list(_open_servers)):
        with contextlib.suppress(Exception):
            server.close()


def leave_with_status(status):
    raise SystemExit(status)


def exit_on_signals(leave=leave_with_status):
    """Turns SIGINT, SIGTERM and SIGHUP into an ordinary exit, so that atexit runs. Call it once. leave(status) is called in
    the main thread and must raise; in another, where pytest-xdist may put all of a worker, nobody could hear it, and the
    signals stay as they are: such a worker is told to stop by the process that started it."""
    if threading.current_thread() is not threading.main_thread():
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def handle(number, _frame):
        for each in numbers:  # a second one must not break off the cleaning up
            signal.signal(each, signal.SIG_IGN)
        leave(128 + number)

    for number in numbers:
        signal.signal(number, handle)
