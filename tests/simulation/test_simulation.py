"""The relay's own loop against a simulated PostgreSQL and simulated sinks, a hundred thousand times.

A failure names its seed: `build/simulation/simulation --seed N --trace` shows the run again, step by step."""

import os
import subprocess

import pytest

from tests.simulation.mutants import MUTANTS, failures, is_found
from tests.support.process import REPO

PROGRAM = os.path.join(REPO, "build", "simulation", "simulation")
SANITIZED = os.path.join(REPO, "build", "dev", "simulation")


def simulate(*arguments, program=PROGRAM):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)


def assert_no_violation(count, *arguments, **options):
    """And that so many seeds were run."""
    done = simulate("--count", count, "--jobs", os.cpu_count(), *arguments, **options)
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-5000:]
    assert done.stdout.startswith(f"{count} runs: "), done.stdout


def test_no_seed_breaks_a_guarantee():
    assert_no_violation(100000)


@pytest.mark.deep
def test_no_seed_of_ten_million_breaks_a_guarantee():
    assert_no_violation(9900000, "--seed", 100001)


@pytest.mark.parametrize("seed", [
    122036,  # a session was given once more the lock that it kept for an event which was gone
    209140,  # a batch that came into a transaction which was being settled in parts was forgotten when that was lost
    967027,  # the side connection settled what such a transaction had deleted and not committed
    1659366,  # a claim beside a straggler kept the locks of what it had found gone, and nobody else came to them
])
def test_a_seed_that_broke_a_guarantee_breaks_none(seed):
    assert_no_violation(1, "--seed", seed)


def test_sanitizers_find_nothing():
    assert_no_violation(1000, program=SANITIZED)


@pytest.mark.parametrize("option, text", [
    ("count", "abc"), ("count", ""), ("count", "0"), ("count", "-1"), ("count", " 1"), ("count", "1e6"), ("seed", "x"),
    ("seed", "18446744073709551616"), ("jobs", "0"), ("jobs", "1000000"), ("jobs", "two")])
def test_a_number_that_is_none_is_refused(option, text):
    done = subprocess.run([PROGRAM, f"--{option}", text], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"simulation: --{option} wants a number from ") and done.stderr.endswith(f", not `{text}`\n")


def test_a_seed_runs_the_same_every_time(tmp_path):
    traces = []
    for name in "first", "second":
        with open(tmp_path / name, "w+", encoding="utf-8") as file:
            subprocess.run([PROGRAM, "--seed", "7", "--count", "20", "--trace"], stdout=file, check=True)
            file.seek(0)
            traces.append(file.read())
    assert traces[0] == traces[1] and traces[0].count("\n") > 1000


def test_each_mutant_is_of_the_code_as_it_is():
    """Most of them are only run by --deep: what no longer fits is told before."""
    texts = {path: open(os.path.join(REPO, path), encoding="utf-8").read() for path in {mutant.path for mutant in MUTANTS}}
    assert {mutant.name for mutant in MUTANTS if texts[mutant.path].count(mutant.old) != 1} == set()


@pytest.mark.parametrize("mutant", [
    pytest.param(mutant, id=mutant.name, marks=() if mutant.soon else pytest.mark.deep) for mutant in MUTANTS])
def test_a_mutant_is_found(mutant):
    """By the guarantee that it breaks."""
    lines = failures(mutant)
    assert is_found(mutant, lines), "\n".join(lines[:20])
