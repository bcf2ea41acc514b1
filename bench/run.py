"""Asks every question of bench/questions in turn and prints one table; bench/results/latest.json has the same and
every single run. bench/README.md says how each number is made."""

import argparse
import datetime
import glob
import importlib
import json
import os
import platform
import sys
import time

from bench.harness import HERE, Bench, BenchFailed
from tests.support import servers
from tests.support.process import exit_on_signals

RESULTS = os.path.join(HERE, "results", "latest.json")


def say(text=""):
    print(text, flush=True)


def questions(only):
    """The modules of bench/questions in the order of their names, those with one of the words `only` in it."""
    names = sorted(os.path.basename(path)[:-3] for path in glob.glob(os.path.join(HERE, "questions", "[0-9]*.py")))
    names = [name for name in names if not only or any(word in name for word in only)]
    if not names:
        raise BenchFailed(f"no question is called {' or '.join(only)}")
    return [importlib.import_module(f"bench.questions.{name}") for name in names]


def machine(postgres):
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return {"cpus": os.cpu_count(), "cpu": models[0] if models else platform.machine(),
            "postgres": postgres.query("show server_version")[0][0], "load_before": round(os.getloadavg()[0], 2)}


def spread(values, digits):
    return f"{min(values):,.{digits}f} .. {max(values):,.{digits}f}"


def print_table(answers):
    say(f"{'question':<34} {'floor':>9}  {'(range)':<19} {'relay':>9}  {'(range)':<19} {'ratio':>6}  unit")
    for answer in answers:
        digits = 0 if answer.rate >= 1000 else 1
        say(f"{answer.question:<34} {answer.floor:>9,.{digits}f}  {spread(answer.floors, digits):<19} "
            f"{answer.rate:>9,.{digits}f}  {spread(answer.rates, digits):<19} {answer.ratio:>6.2f}  {answer.unit}")


def write_results(path, facts, answers):
    facts["results"] = [answer.as_json() for answer in answers]
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(facts, file, indent=1)
        file.write("\n")
    os.replace(path + ".new", path)


def ask_all(arguments):
    modules = questions(arguments.only)
    with servers.Postgres(durable=True) as postgres:
        facts = {"made": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                 "events": arguments.events, "pairs": arguments.pairs, **machine(postgres)}
        bench = Bench(postgres, arguments.events, arguments.pairs, 5 if arguments.quick else 20, lambda text: say(f"  {text}"))
        answers = []
        for module in modules:
            say(f"== {module.__doc__.splitlines()[0]}")
            answers += module.ask(bench)
    say()
    print_table(answers)
    if not arguments.only:
        write_results(RESULTS, facts, answers)
        say(f"\n{os.path.relpath(RESULTS)} has every run")


def main():
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument("events", nargs="?", type=int, default=200_000, help="events of each drain (default 200000)")
    parser.add_argument("--quick", action="store_true", help="3 pairs of runs instead of 5, and shorter ones of latency")
    parser.add_argument("--pairs", type=int, help="pairs of runs")
    parser.add_argument("--only", action="append", metavar="WORD", help="only questions with WORD in their name; writes no results")
    arguments = parser.parse_args()
    arguments.pairs = arguments.pairs or (3 if arguments.quick else 5)
    if arguments.events < 1000 or arguments.pairs < 1:
        parser.error("at least 1000 events and one pair")
    exit_on_signals()
    begun = time.monotonic()
    try:
        ask_all(arguments)
    except (BenchFailed, TimeoutError, servers.ServerError) as error:
        print(f"bench FAILED: {error}", file=sys.stderr)
        return 1
    say(f"== done in {time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
