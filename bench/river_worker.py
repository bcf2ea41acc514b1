"""River (https://riverqueue.com), the job queue for Go on PostgreSQL: what its worker costs beside what pgcourier does. Needs `go`,
and the Go module proxy once."""

import functools
import json
import os
import shutil
import subprocess

from bench.answer import BenchFailed
from bench.harness import HERE
from tests.support.process import REPO, Process, Server

SOURCE = os.path.join(HERE, "river")
PROGRAM = os.path.join(REPO, ".cache", "river", "worker")
BUILD_TIMEOUT_S = 300
MIGRATE_TIMEOUT_S = 60


class RiverAbsent(BenchFailed):
    """There is no worker to be measured, with the reason."""


def is_built():
    sources = [os.path.join(SOURCE, name) for name in os.listdir(SOURCE)]
    return os.path.exists(PROGRAM) and os.path.getmtime(PROGRAM) > max(map(os.path.getmtime, sources))


@functools.cache
def reason_absent():
    """Builds the worker, if it has not been built yet. Returns why that cannot be done, or an empty text: asked twice, it tries once."""
    if is_built():
        return ""
    go = shutil.which("go", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/go/bin"]))
    if not go:
        return "go is not installed"
    try:
        done = subprocess.run([go, "build", "-buildvcs=false", "-o", PROGRAM, "."], cwd=SOURCE, capture_output=True, text=True, check=False,
                              timeout=BUILD_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        return f"go build: {error}"
    return f"go build: {last_line(done.stderr)}" if done.returncode != 0 else ""


def last_line(text):
    return (text.strip().splitlines() or ["no reason given"])[-1]


def program():
    if why := reason_absent():
        raise RiverAbsent(why)
    return PROGRAM


def migrate(db):
    """Makes River's tables."""
    done = subprocess.run([program(), "migrate", db.superuser_dsn], capture_output=True, text=True, check=False, timeout=MIGRATE_TIMEOUT_S)
    if done.returncode != 0:
        raise BenchFailed(f"River's migration: {last_line(done.stderr)}")


class RiverWorker(Server):
    """RiverWorker(db) -> a worker, started on enter, whose jobs do nothing."""

    name = "river"

    def __init__(self, db):
        super().__init__()
        self.db = db

    def _launch(self):
        return Process([program(), "work", self.db.superuser_dsn], self.log_path, cwd=self.folder)

    def _lines(self):
        with open(self.log_path, encoding="utf-8") as log:
            return log.read().splitlines()

    def _answers(self):
        return "ready" in self._lines()

    def report(self):
        """Stops it. What it says of its jobs: count, p50_ms, p99_ms, p999_ms."""
        self.stop()
        reports = [line for line in self._lines() if line.startswith("{")]
        if self.process.returncode != 0 or not reports:
            raise BenchFailed(f"River's worker ended with {self.process.returncode}\n{self.process.log_tail()}")
        return json.loads(reports[-1])
