"""The relay's own loop against a simulated PostgreSQL and simulated sinks, a hundred thousand times.

A failure names its seed: `build/simulation/simulation --seed N --trace` shows the run again, step by step."""

import os
import subprocess

import pytest

from tests.simulation.mutants import MUTANTS, first_failure
from tests.support.process import REPO

PROGRAM = os.path.join(REPO, "build", "simulation", "simulation")
SANITIZED = os.path.join(REPO, "build", "dev", "simulation")


def simulate(*arguments, program=PROGRAM):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)


def assert_no_violation(done):
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-5000:]


def test_no_seed_breaks_a_guarantee():
    assert_no_violation(simulate("--count", 100000, "--jobs", os.cpu_count()))


@pytest.mark.deep
def test_no_seed_of_ten_million_breaks_a_guarantee():
    assert_no_violation(simulate("--seed", 100001, "--count", 9900000, "--jobs", os.cpu_count()))


def test_sanitizers_find_nothing():
    assert_no_violation(simulate("--count", 1000, "--jobs", os.cpu_count(), program=SANITIZED))


def test_a_seed_runs_the_same_every_time(tmp_path):
    traces = []
    for name in "first", "second":
        with open(tmp_path / name, "w+", encoding="utf-8") as file:
            subprocess.run([PROGRAM, "--seed", "7", "--count", "20", "--trace"], stdout=file, check=True)
            file.seek(0)
            traces.append(file.read())
    assert traces[0] == traces[1] and traces[0].count("\n") > 1000


@pytest.mark.parametrize("mutant", [
    pytest.param(mutant, id=mutant.name, marks=() if mutant.soon else pytest.mark.deep) for mutant in MUTANTS])
def test_a_mutant_is_found(mutant):
    assert first_failure(mutant)
