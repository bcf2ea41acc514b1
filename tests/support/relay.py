"""Runs the pgcourier program."""

import os
import re
import signal
import subprocess

from tests.support.process import REPO, Process, Server, ServerError

DEATH = signal.SIGUSR2 if os.environ.get("PGCOURIER_COVERAGE") else signal.SIGKILL  # see coverage_end.c
SANITIZERS = {"ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0:exitcode=99", "UBSAN_OPTIONS": "print_stacktrace=1"}


def binary(presets=("dev", "release")):
    """The program under test: PGCOURIER_BIN, else the first preset that is built. Numbers (memory, speed) are measured
    with presets=["release"]: a sanitizer multiplies them."""
    chosen = os.environ.get("PGCOURIER_BIN")
    candidates = [chosen] if chosen else [os.path.join(REPO, "build", preset, "pgcourier") for preset in presets]
    for path in candidates:
        if os.access(path, os.X_OK):
            return os.path.abspath(path)
    raise ServerError(f"no pgcourier at {' or '.join(candidates)}: run ./dev build dev")


def environment(extra=None):
    return {**os.environ, **SANITIZERS, **(extra or {})}


def run_command(*arguments, stdin=None, env=None, timeout_s=60):
    """`pgcourier ARGUMENTS...` to its end: a CompletedProcess with text stdout and stderr."""
    return subprocess.run([binary(), *arguments], input=stdin, env=environment(env), capture_output=True, text=True,
                          timeout=timeout_s, check=False)


class Relay(Server):
    """Relay(config_text) -> a running `pgcourier run`, its log in .log. until_empty=True lets it end by itself;
    command="bench" is another command that stays for a while.

    start() returns as soon as the process exists: what to wait for differs from test to test."""

    name = "relay"

    def __init__(self, config, until_empty=False, arguments=(), env=None, program=None, command="run"):
        super().__init__()
        self.command = command
        self.program = program or binary()
        self.config_path = os.path.join(self.folder, "pgcourier.yaml")
        self.arguments = [*arguments, *(["--until-empty"] if until_empty else [])]
        self.env = environment(env)
        self.peak_bytes = 0
        self.configure(config)

    def configure(self, text):
        """Writes the configuration file anew; send(signal.SIGHUP) makes the relay read it."""
        with open(self.config_path, "w") as file:
            file.write(text)

    def start(self):
        self.process = self._launch()
        return self

    def _launch(self):
        command = [self.program, self.command, "-c", self.config_path, *self.arguments]
        return Process(command, self.log_path, env=self.env, cwd=self.folder)

    def send(self, number):
        self.process.send(number)

    def kill(self):
        """As by SIGKILL. A build that counts what ran writes its counters first, if it has any yet."""
        if self.process:
            self.process.end(DEATH, timeout_s=5)

    def wait(self, timeout_s=60.0):
        """Waits for its end and returns the exit code (negative: the signal that killed it)."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ServerError(f"the relay still runs after {timeout_s:g} s\n{self.process.log_tail()}") from None

    def stop(self, number=signal.SIGTERM, timeout_s=30.0):
        """Returns the exit code; SIGKILL when it does not end in time."""
        if self.process is None:
            return None
        self.rss_peak()
        return self.process.end(number, timeout_s)

    @property
    def exit_code(self):
        code = self.process.returncode
        return -signal.SIGKILL if code == -DEATH else code

    @property
    def log(self):
        """The lines it has logged so far."""
        with open(self.log_path, errors="replace") as file:
            return file.read().splitlines()

    def logged(self, pattern):
        """The log lines in which the regular expression is found."""
        return [line for line in self.log if re.search(pattern, line)]

    def _status_bytes(self, name):
        try:
            with open(f"/proc/{self.pid}/status") as status:
                found = re.search(rf"^{name}:\s+(\d+) kB", status.read(), re.MULTILINE)
        except FileNotFoundError:
            return 0
        return int(found.group(1)) * 1024 if found else 0

    def rss(self):
        """Resident memory now, in bytes; 0 once it has ended."""
        return self._status_bytes("VmRSS")

    def rss_peak(self):
        """The most resident memory seen, in bytes; the last reading once it has ended."""
        self.peak_bytes = max(self.peak_bytes, self._status_bytes("VmHWM"))
        return self.peak_bytes
