"""Relays under strace(1), from the first system call of main() on: what came before is the dynamic loader's.

    gate = build_gate(folder)
    one = TracedRelay(config, gate, ["-c"], until_empty=True).start()
    one.wait(60); one.calls()           # {name: times} of all threads
    one = TracedRelay(config, gate, injection("read", "EIO", 7), until_empty=True).start()
    one.wait(60); one.injected()        # the calls that were made to fail
"""

import os
import re
import signal
import subprocess
import time
from collections import namedtuple

from tests.support.process import REPO, Process, find_program, stands_still, wait_until
from tests.support.relay import Relay

Injected = namedtuple("Injected", "at what call error")  # what: the call as strace shows it
INJECTED = re.compile(r"(?:<\.\.\. )?(\w+).* = -1 (E\w+) \(.*\(INJECTED\)")


def build_gate(folder):
    """The library that stops a program at the start of its main()."""
    library = os.path.join(folder, "gate.so")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-D_GNU_SOURCE", "-o", library,
                    os.path.join(REPO, "tests", "support", "gate.c"), "-ldl"], check=True)
    return library


def injection(call, error, number):
    """strace's arguments that make the number'th such call of each thread fail; the call is not made at all."""
    return ["-ttt", "-e", f"trace={call}", "-e", f"inject={call}:error={error}:when={number}"]


class TracedRelay(Relay):
    def __init__(self, config, gate, arguments, **options):
        super().__init__(config, **options)
        self.gate = gate
        self.strace_arguments = arguments
        self.trace_path = os.path.join(self.folder, "trace")
        self.tracer = None

    def _launch(self):
        """Not by this process' environment: what starts the relay has a main(), too."""
        command = ["env", f"LD_PRELOAD={self.gate}", self.program, "run", "-c", self.config_path, *self.arguments]
        return Process(command, self.log_path, env=self.env, cwd=self.folder)

    def start(self):
        super().start()
        wait_until(lambda: stands_still(self.pid), 30, "the relay to come to its main()")
        said = os.path.join(self.folder, "strace")
        self.tracer = Process([find_program("strace"), "-f", "-o", self.trace_path, *self.strace_arguments, "-p", str(self.pid)],
                              said)
        wait_until(lambda: "attached" in _read(said) or not self.tracer.running, 30, "strace to come")
        assert self.tracer.running, f"strace: {_read(said)}"
        self.send(signal.SIGCONT)
        return self

    def wait(self, timeout_s=60.0):
        code = super().wait(timeout_s)
        self.tracer.wait(timeout_s)
        return code

    def calls(self):
        """What -c counted."""
        rows = [line.split() for line in _read(self.trace_path).splitlines()]
        return {row[-1]: int(row[3]) for row in rows if row and row[-1] != "total" and row[0][0].isdigit()}

    def injected(self):
        """As Injected; the times are those of time.monotonic()."""
        ahead_s = time.time() - time.monotonic()
        lines = [line.split(maxsplit=2) for line in _read(self.trace_path).splitlines() if line.endswith("(INJECTED)")]
        return [Injected(float(wall) - ahead_s, what, *INJECTED.fullmatch(what).groups()) for _, wall, what in lines]


def _read(path):
    if not os.path.exists(path):
        return ""
    with open(path, errors="replace") as file:
        return file.read()
