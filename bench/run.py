"""Asks the questions of bench/questions, all or those whose numbers are given, and prints one table;
bench/results/latest.json has the same and every single run, results/README.md, docs/performance.md and README.md are filled from it.
bench/README.md says how each number is made."""

import argparse
import contextlib
import datetime
import glob
import importlib
import os
import platform
import re
import subprocess
import sys
import time

import psycopg2

from bench import page, plot, results, table
from bench.answer import BenchFailed
from bench.harness import HERE, Bench, Run
from tests.support import servers
from tests.support.process import REPO, exit_on_signals


PROMISED_MINUTES = {"full": 60, "quick": 8}  # of all questions, as the documentation says


def say(text=""):
    print(text, flush=True)


def questions():
    """{number: module name}: a file questions/NN_name.py for each."""
    paths = sorted(glob.glob(os.path.join(HERE, "questions", "[0-9][0-9]_*.py")))
    return {int(os.path.basename(path)[:2]): f"bench.questions.{os.path.basename(path)[:-3]}" for path in paths}


def machine(postgres):
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return {"cpus": os.cpu_count(), "cpu": models[0] if models else platform.machine(),
            "postgres": re.match(r"\S+", postgres.query("show server_version")[0][0]).group()}


def git(*arguments):
    done = subprocess.run(["git", "-C", REPO, *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def commit():
    """With a + when there is more than that: what a bench itself writes does not count."""
    changed = git("status", "--porcelain", "--", ".", ":!bench/results", *(f":!{os.path.relpath(path, REPO)}" for path in page.PAGES))
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "") or None


def ask(postgres, number, name, run):
    """The answers, each of which knows its number; None when there is none: the others are asked all the same."""
    module = importlib.import_module(name)
    say(f"== {number}: {module.__doc__.splitlines()[0]}")
    begun, bench, answers = time.monotonic(), None, None
    try:
        bench = Bench(postgres, run, name=f"bench_{number}")
        answers = module.ask(bench)
    except (BenchFailed, OSError, psycopg2.Error, subprocess.SubprocessError, servers.ServerError) as error:
        print(f"bench FAILED: question {number}: {error}", file=sys.stderr, flush=True)
    if bench:
        with contextlib.suppress(psycopg2.Error):  # it has failed already, then
            bench.db.drop()
    for answer in answers or []:
        answer.number = number
    say(f"  {time.monotonic() - begun:.0f} s")
    return answers


def prepare(name):
    """What a question builds before it can be asked, once a machine: not in its time, as the build of the relay is not."""
    getattr(importlib.import_module(name), "prepare", lambda _: None)(say)


def keep(entries):
    """After each question: whoever breaks off leaves pages that agree with the results."""
    results.write(entries)
    plot.write(entries, os.path.dirname(results.PATH))
    page.update(entries)


def ask_all(numbers, run):
    """Asks, and keeps what was answered after each question. Returns whether all were answered."""
    found = questions()
    entries, now, unanswered = results.read(), [], []
    with servers.Postgres(durable=True) as postgres:
        facts = {"quick": run.quick, "pairs": run.pairs, "commit": commit(), **machine(postgres)}
        for number in numbers:
            made = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
            load = round(os.getloadavg()[0], 2)
            answers = ask(postgres, number, found[number], run)
            if answers is None:
                unanswered.append(number)
                continue
            entries = results.merge(entries, answers, {"made": made, "load_before": load, **facts})
            now.append(number)
            if run.keep:
                keep(entries)
    say()
    for line in table.lines(entry for entry in entries if entry["number"] in now):
        say(line)
    if run.keep:
        say(f"\n{os.path.relpath(results.PATH)} has every run; results/README.md, docs/performance.md and README.md quote it")
    return not unanswered


def time_said(seconds, quick, whole):
    """The last line. `whole`: all questions, with as many pairs as usual, which is what a time is promised for."""
    text = f"== done in {seconds:.0f} s"
    if not whole:
        return text
    minutes = PROMISED_MINUTES["quick" if quick else "full"]
    kept = f"the {minutes} minutes that are promised"
    return f"{text}: {kept} are kept" if seconds <= minutes * 60 else f"{text}: longer than {kept}, by {seconds - minutes * 60:.0f} s"


def main():
    found = questions()
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument("numbers", nargs="*", type=int, metavar="NUMBER", help="questions to ask (default: all)")
    parser.add_argument("--quick", action="store_true", help="smaller data, and 3 pairs of runs instead of 5")
    parser.add_argument("--pairs", type=int, help="pairs of runs")
    parser.add_argument("--print", action="store_true", help="only print: leave results, plots and pages as they are")
    arguments = parser.parse_args()
    numbers = arguments.numbers or list(found)
    if unknown := [number for number in numbers if number not in found]:
        parser.error(f"there is no question {unknown[0]}: there are {', '.join(map(str, found))}")
    pairs = arguments.pairs or (3 if arguments.quick else 5)
    if pairs < 1:
        parser.error("at least one pair")
    exit_on_signals()
    for number in numbers:
        prepare(found[number])
    begun = time.monotonic()
    complete = ask_all(numbers, Run(arguments.quick, pairs, lambda text: say(f"  {text}"), not arguments.print))
    say(time_said(time.monotonic() - begun, arguments.quick, numbers == list(found) and not arguments.pairs))
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
