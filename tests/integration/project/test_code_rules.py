"""What the code may not use is found by the lint and by the compiler, and none of it is there."""

import json
import os
import shlex
import subprocess

import pytest

from tests.lint.owners import problems_in, relay_sources
from tests.lint.structure import banned_calls, include_loops, read, tracked, wrong_includes
from tests.support.process import REPO
from tests.support.relay import binary

BANNED = ["strcpy", "strcat", "sprintf", "vsprintf", "gets", "atoi", "atol", "strtok", "strtok_r", "system", "popen", "alloca", "PQescapeLiteral", "PQfn"]


@pytest.mark.parametrize("function", BANNED)
def test_a_banned_function_is_found(function):
    text = f"/* {function} is a word here */\n    x = fs{function}(a) + b.{function}(a);\n    {function}(text);\n"
    (problem,) = banned_calls("relay/x.c", text)
    assert problem.startswith(f"relay/x.c:3: {function}(): ")


def test_no_banned_function_is_used():
    assert [problem for name in tracked("*.c", "*.h") for problem in banned_calls(name, read(name))] == []


def test_a_loop_of_includes_is_found():
    graph = {"relay/a": {"relay/b"}, "relay/b": {"relay/c"}, "relay/c": {"relay/b"}, "relay/d": set()}
    assert list(include_loops(graph, set())) == ["relay/b, relay/c: in a loop of includes: relay/b, relay/c"]
    assert list(include_loops(graph, {"relay/b", "relay/c"})) == []
    (problem,) = include_loops(graph, {"relay/b", "relay/c", "relay/d"})
    assert problem.startswith("relay/d: in no loop of includes any more")


def test_an_include_that_names_no_folder_is_found():
    (problem,) = wrong_includes("relay/settle/settle.c", '#include "refusal.h"\n#include "sql_text.h"\n#include "relay/settle/settle.h"\n')
    assert problem.startswith("relay/settle/settle.c: includes refusal.h: ")


SETTLE = "relay/settle/settle.c"


def problems_with(line):
    """What is found when this line stands in settle.c, too."""
    sources = relay_sources()
    sources[SETTLE] += line + "\n"
    return list(problems_in(sources, [SETTLE]))


@pytest.mark.parametrize("line", ["queue->pause.on = true;", "lane_queue(lane)->claiming.key_limit++;", "--queue->pace.idle_us;",
                                  "queue->wakeups.next_queue = queue->stopping = true;", "struct refusal *refusal = &queue->refusal;",
                                  "instant_us *at = &claim->queue->pace.poll_at;", "change(now, &queue->pace.poll_at);",
                                  "static void take(struct leases *leases);", "queue->config = NULL;", "lane->hold = HOLD_LOST;",
                                  "batch->leased_at++;", "memset(&queue->pace, 0, sizeof queue->pace);",
                                  "struct queue *q = lane_queue(lane); q->stopping = true;"])
def test_a_write_to_what_another_module_owns_is_found(line):
    (problem,) = problems_with(line)
    assert problem.startswith(f"{SETTLE}:") and " is written by " in problem


@pytest.mark.parametrize("line", ["bool paused = queue->pause.on == true;", "const struct refusal *refusal = &queue->refusal;",
                                  "look(&queue->pace);", "queue->metrics.settled++;", "queue->wakeups.next_queue = true;",
                                  "static void look(const struct leases *leases);", "queue->arrived->chains[0] = lane;",
                                  "lane->settled_at = now;"])
def test_a_read_and_a_write_of_the_own_are_no_problem(line):
    assert problems_with(line) == []


def test_a_field_that_nobody_owns_is_found():
    sources = relay_sources()
    header = "relay/queue/queue_parts.h"
    sources[header] = sources[header].replace(" Written by relay/claim/ahead.c only.", "")
    assert list(problems_in(sources, [])) == ["relay/queue/queue.h: struct queue: nothing says who writes `ahead`"]


@pytest.mark.parametrize("body, warning", [("char a[n]; a[0] = 1; return a[0];", "vla"),
                                           ("char *a = __builtin_alloca((unsigned)n); a[0] = 1; return a[0];", "alloca"),
                                           ("return n + __DATE__[0];", "date-time"),
                                           ("return abs(n);", "implicit-function-declaration")])
def test_the_compiler_refuses(tmp_path, body, warning):
    with open(os.path.join(os.path.dirname(binary()), "compile_commands.json")) as file:
        entry = next(entry for entry in json.load(file) if entry["file"].endswith("/relay/base/arena.c"))
    source = tmp_path / "source.c"
    source.write_text(f"int tried(int n);\nint tried(int n)\n{{\n    {body}\n}}\n")
    flags = [flag for flag in shlex.split(entry["command"]) if flag.startswith(("-W", "-std", "-O")) and not flag.startswith("-Wl")]
    done = subprocess.run(["cc", *flags, "-c", "-o", "/dev/null", str(source)], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and f"-Werror={warning}" in done.stderr


def test_recursion_is_found(tmp_path):
    source = tmp_path / "source.c"
    source.write_text("int down(int n);\nint down(int n)\n{\n    return n > 0 ? down(n - 1) : 0;\n}\n")
    done = subprocess.run(["clang-tidy", "--quiet", f"--config-file={REPO}/.clang-tidy", str(source), "--"],
                          capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "misc-no-recursion" in done.stdout
