"""The rules of the tree that no compiler checks: nothing lies about, includes flow one way, every header compiles alone,
SQL lives in sql/, memory comes from one place, and files stay short enough to be one concept."""

import concurrent.futures
import os
import re
import shlex
import subprocess
import sys

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# The folders of relay/, in the order in which they build on each other: each includes from itself and from those before.
RELAY_FOLDERS = ("base", "postgres", "config", "table", "queue", "deliver", "route", "settle", "hold", "side", "claim", "rest")
RELAY_ABOVE_THE_LOOP = ("bench", "commands")  # relay.c, the loop, stands between


def layers():
    """(prefix of a file's name, prefixes of what that file may include); the first row that matches counts."""
    below = ["ordering/", "sinks/"]
    rows = [("ordering/", ("relay/base/", "ordering/")), ("sinks/", ("relay/base/", "sinks/"))]
    for folder in RELAY_FOLDERS:
        below.append(f"relay/{folder}/")
        rows.append((f"relay/{folder}/", ("relay/base/",) if folder == "base" else tuple(below)))
    rows.append(("relay/main.c", ("relay/", "ordering/", "sinks/")))
    loop = [f"relay/{name}" for name in ("queue_open.h", "relay.h", "relay_end.h")]
    for folder in RELAY_ABOVE_THE_LOOP:
        below.append(f"relay/{folder}/")
        rows.append((f"relay/{folder}/", (*below, *loop)))
    in_the_loop = tuple(prefix for prefix in below if prefix[6:-1] not in RELAY_ABOVE_THE_LOOP)
    rows.append(("relay/", (*in_the_loop, *loop)))
    return rows


LAYERS = layers()

# What a folder keeps for itself: headers of this name are included from their own folder, and from those named here.
STATE = re.compile(r"(relay/\w+/)\w+_state\.h$")
STATE_READERS = {"relay/claim/claim_state.h": ("relay/relay_end.c", "relay/rest/rest.c")}

# Modules (a source and its header) that may include each other in a loop: none.
IN_A_LOOP = frozenset()

# What the top holds besides hidden files.
TOP = {"relay", "ordering", "sinks", "sql", "tests", "bench", "docs", "packaging", "dev", "CMakeLists.txt", "CMakePresets.json",
       "LICENSE", "README.md"}
BYTES_MAX = 500_000  # what is larger was made by something, and can be made again

LINES_MAX = 450
LINES_MAX_TESTS = 500  # a fixture and its cases read better in one place

# Source files that may hold words of SQL, with the reason.
SQL_ALLOWED = {
    "relay/table/table_check.c": "statements offered to the reader as remedies, never run",
}
SQL = re.compile(r'"[^"\n]*\b(SELECT\s+[\w*(]|INSERT\s+INTO\s|UPDATE\s+\S+\s+SET\s|DELETE\s+FROM\s|CREATE\s+(TABLE|INDEX|SCHEMA|'
                 r'FUNCTION|ROLE|TRIGGER)\s|ALTER\s+(TABLE|ROLE|SEQUENCE)\s|DROP\s+(TABLE|INDEX|SCHEMA)\s)')
# Memory comes from one place, which knows what to do when there is none left.
ALLOCATES_IN = "relay/base/arena.c"
ALLOCATION = re.compile(r"\b(malloc|calloc|realloc|reallocarray|aligned_alloc|strn?dup|v?asprintf|getline|open_memstream)\(")
# What trusts its argument's length, says nothing of a number that is none, goes through a shell, or had the weaknesses that
# old releases of libpq still have (relay/base/libraries.c). The compiler refuses arrays of variable length and alloca, clang-tidy
# recursion.
BANNED = re.compile(r"(?<![\w.>])(strcpy|strcat|stpcpy|strncpy|strncat|v?sprintf|gets|ato[fil]|atoll|strtok|strtok_r|system|popen|alloca|PQescape\w+|PQfn)\s*\(")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def tracked(*patterns):
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    names = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=True).stdout.split()
    return [name for name in names if os.path.exists(os.path.join(REPO, name))]


def read(name):
    with open(os.path.join(REPO, name), encoding="utf-8") as file:
        return file.read()


def misplaced(name):
    top = name.split("/", 1)[0]
    if top not in TOP and not top.startswith("."):
        yield f"{name}: {top} does not belong at the top: {', '.join(sorted(TOP))}"
    if os.path.getsize(os.path.join(REPO, name)) > BYTES_MAX:
        yield f"{name}: more than {BYTES_MAX:,} bytes: the repository is no place for what a program has made"


def wrong_includes(name, text):
    allowed = next((targets for prefix, targets in LAYERS if name.startswith(prefix)), None)
    if allowed is None:
        return
    for included in INCLUDE.findall(text):
        if "/" not in included and included != "sql_text.h":
            yield f"{name}: includes {included}: name its folder, or no rule of includes can see it"
        elif "/" in included and not included.startswith(allowed):
            yield f"{name}: includes {included}: only {', '.join(allowed)} may be included from here"


def opened_states(name, text):
    for included in INCLUDE.findall(text):
        owner = STATE.match(included)
        if owner and not name.startswith((owner.group(1), "tests/")) and name not in STATE_READERS.get(included, ()):
            yield f"{name}: includes {included}, which is the own state of {owner.group(1)}"


def included_modules(sources):
    """Module -> the modules that its source or its header includes."""
    graph = {}
    for name in sources:
        if name.startswith(("relay/", "ordering/", "sinks/")):
            module = graph.setdefault(os.path.splitext(name)[0], set())
            module.update(os.path.splitext(included)[0] for included in INCLUDE.findall(read(name)))
    return {module: {other for other in included if other in graph and other != module} for module, included in graph.items()}


def reachable(graph, start):
    seen, waiting = set(), list(graph[start])
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            waiting.extend(graph[module])
    return seen


def include_loops(graph, accepted):
    """A module in a loop of includes cannot be read, tested or changed without all the others of the loop."""
    reached = {module: reachable(graph, module) for module in graph}
    loops = {frozenset(other for other in reached[module] if module in reached[other]) for module in graph} - {frozenset()}
    for loop in loops:
        new = sorted(loop - accepted)
        if new:
            yield f"{', '.join(new)}: in a loop of includes: {', '.join(sorted(loop))}"
    for module in sorted(accepted - set().union(*loops)):
        yield f"{module}: in no loop of includes any more: take it off the list in tests/lint/structure.py"


def stray_sql(name, text):
    if name in SQL_ALLOWED or not name.startswith(("relay/", "ordering/", "sinks/")):
        return
    for number, line in enumerate(text.splitlines(), 1):
        if SQL.search(line):
            yield f"{name}:{number}: SQL in C: put the statement into a file in sql/"


def stray_allocations(name, text):
    if name == ALLOCATES_IN or not name.startswith(("relay/", "ordering/", "sinks/")):
        return
    for number, line in enumerate(text.splitlines(), 1):
        found = ALLOCATION.search(line)
        if found:
            yield f"{name}:{number}: {found.group(1)}(): memory comes from relay/base/arena.h"


def banned_calls(name, text):
    if not name.startswith(("relay/", "ordering/", "sinks/", "bench/")):
        return
    for number, line in enumerate(text.splitlines(), 1):
        for call in BANNED.findall(line):
            yield f"{name}:{number}: {call}(): one of the functions that are not used here, see BANNED in {os.path.relpath(__file__, REPO)}"


def too_long(name, text):
    lines = text.count("\n")
    if lines > (LINES_MAX_TESTS if name.startswith("tests/") else LINES_MAX):
        yield f"{name}: {lines} lines: two concepts in one file?"


def compiles_alone(name, flags):
    command = [*flags, "-fsyntax-only", "-Wno-pragma-once-outside-header", "-x", "c", os.path.join(REPO, name)]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        yield f"{name}: does not compile alone:\n{done.stderr}"


def include_flags():
    """The compiler with the libraries' include folders, asked of pkg-config: no build is needed first."""
    libraries = ["libpq", "rdkafka", "hiredis", "libcurl", "libfyaml", "jansson", "check"]
    done = subprocess.run(["pkg-config", "--cflags", *libraries], capture_output=True, text=True, check=True)
    return ["cc", "-std=gnu17", "-D_GNU_SOURCE", '-DPGCOURIER_VERSION="0"', "-I", REPO, *shlex.split(done.stdout)]


def main():
    sources, headers, python = tracked("*.c", "*.h"), tracked("*.h"), tracked("*.py")
    problems = [problem for name in tracked() for problem in misplaced(name)]
    for name in [*sources, *python, *tracked("*.sql")]:
        text = read(name)
        problems += too_long(name, text)
        if name in sources:
            problems += [*wrong_includes(name, text), *opened_states(name, text), *stray_sql(name, text), *stray_allocations(name, text), *banned_calls(name, text)]
    problems += include_loops(included_modules(sources), IN_A_LOOP)
    flags = include_flags()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(lambda name: list(compiles_alone(name, flags)), headers):
            problems += found
    print("\n".join(problems) if problems else f"{len(sources)} files keep the rules")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
