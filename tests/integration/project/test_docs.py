"""What README.md and docs/ show works: configurations, commands, SQL, links, names of log lines."""

import glob
import json
import os
import re
import shutil
import subprocess

import pytest

from tests.integration.project.test_history import ILLEGAL, LEGAL
from tests.integration.project.test_history_mutants import MUTANTS as MODEL_MUTANTS
from tests.simulation.mutants import MUTANTS
from tests.support.process import REPO, find_program
from tests.support.relay import binary, environment
from tests.support.servers import run_command

PAGES = sorted(["README.md", "sql/README.md", *(os.path.relpath(path, REPO) for path in
                                               glob.glob(os.path.join(REPO, "docs", "**", "*.md"), recursive=True))])


def read(path):
    with open(os.path.join(REPO, path)) as file:
        return file.read()


def blocks(path, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", read(path), re.MULTILINE | re.DOTALL)


# ---- configurations ----

CONFIGURATIONS = [(page, number, text) for page in PAGES for number, text in enumerate(blocks(page, "yaml"), 1)]


def completed(text, folder):
    """A fragment with sinks alone gets a queue for each, secrets get a file, and a sink's file a folder that exists."""
    secret = folder / "secret"
    secret.write_text("password\n")
    text = re.sub(r"(_file: *)[^\s,}]+", rf"\g<1>{secret}", text)
    text = re.sub(r'( path: *"?)/[^\s"]+/', rf"\g<1>{folder}/", text)
    if not re.search(r"^queues:", text, re.MULTILINE):
        sinks = re.findall(r"^  ([\w-]+):", text, re.MULTILINE)
        text += "queues:\n" + "".join(f"  q_{name}: {{ sink: {name}, destination: d }}\n" for name in sinks)
    return text


@pytest.mark.parametrize("page, number, text", CONFIGURATIONS, ids=[f"{page}-{number}" for page, number, _ in CONFIGURATIONS])
def test_every_configuration_shown_is_good(tmp_path, page, number, text):
    path = tmp_path / "pgcourier.yaml"
    path.write_text(completed(text, tmp_path))
    result = run_command("check-config", "-c", str(path))
    assert (result.returncode, result.stderr) == (0, "")


def test_the_pages_show_configurations():
    assert {"README.md", "docs/existing-table.md", "docs/configuration.md"} <= {page for page, _, _ in CONFIGURATIONS}


# ---- what a newcomer types ----

def same_shape(shown, got):
    """Equal but for what differs from run to run: times and identifiers."""
    varying = {"created_at", "event_id"}
    assert list(shown) == list(got)
    for name, value in shown.items():
        if isinstance(value, dict):
            same_shape(value, got[name])
        elif name not in varying:
            assert value == got[name], name


@pytest.fixture
def shell(pg, tmp_path):
    """Runs a script in an empty folder, with pgcourier in PATH and a server that the PG* variables name."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "pgcourier").symlink_to(binary())
    tools = os.path.dirname(find_program("psql", *glob.glob("/usr/lib/postgresql/*/bin")))
    env = environment({"PATH": f"{programs}:{tools}:{os.environ['PATH']}", "PGHOST": "127.0.0.1", "PGPORT": str(pg.port),
                       "PGUSER": "postgres"})
    work = tmp_path / "work"
    work.mkdir()

    def run(script):
        return subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=work, env=env, capture_output=True, text=True,
                              timeout=60, check=False)

    run.folder = work
    yield run
    pg.query("drop database if exists shop with (force)")


@pytest.mark.superuser("it is what a newcomer types, on a server of their own")
def test_the_quick_start_does_what_it_says(shell):
    (shell.folder / "pgcourier.yaml").write_text(blocks("README.md", "yaml")[0])
    (script,) = re.findall(r"<!-- quick start -->\n```sh\n(.*?)^```$", read("README.md"), re.MULTILINE | re.DOTALL)
    done = shell(script)
    assert done.returncode == 0, done.stderr
    same_shape(json.loads(blocks("README.md", "json")[0]), json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.superuser("it is what a newcomer types, on a server of their own")
def test_the_existing_table_is_served_and_reported_as_shown(shell):
    page = "docs/existing-table.md"
    (shell.folder / "pgcourier.yaml").write_text(blocks(page, "yaml")[0])
    (shell.folder / "table.sql").write_text(blocks(page, "sql")[0] +
                                            "insert into events (order_id, status) values (7, 'new');")
    done = shell("createdb shop; psql -qX shop -f table.sql; pgcourier migrate -c pgcourier.yaml;"
                 "pgcourier check-config --database -c pgcourier.yaml; pgcourier run -c pgcourier.yaml --until-empty;"
                 "cat events.jsonl")
    assert done.returncode == 0, done.stderr
    (shown,) = re.findall(r"^    (orders: warning: .*)$", read(page), re.MULTILINE)
    assert shown in done.stdout.splitlines()
    same_shape(json.loads(blocks(page, "json")[0]), json.loads(done.stdout.splitlines()[-1]))


def test_the_sql_for_producers_runs(db):
    db.query("create table public.orders (id bigint primary key, status text); insert into public.orders values (7);"
             "create table public.events (id bigserial primary key, order_id bigint, status text)")
    for text in blocks("docs/producers.md", "sql"):
        db.psql(text)
    assert db.value("select count(*) from public.events") == 1
    assert db.value("select count(*) from outbox.events") == 1


# ---- names ----

def linked_files():
    for page in PAGES:
        text = re.sub(r"^```.*?^```$", "", read(page), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            if "://" not in target:
                yield page, target


def test_every_link_leads_somewhere():
    dead = [f"{page}: {target}" for page, target in linked_files()
            if not os.path.exists(os.path.join(REPO, os.path.dirname(page), target))]
    assert dead == []


def test_every_page_can_be_reached_from_the_readme():
    reached, todo = set(), ["README.md"]
    links = list(linked_files())
    while todo:
        page = todo.pop()
        reached.add(page)
        targets = {os.path.normpath(os.path.join(os.path.dirname(page), target)) for of, target in links if of == page}
        todo += [target for target in targets if target in PAGES and target not in reached]
    assert set(PAGES) - reached == set()


def test_the_log_lines_of_the_relay_are_all_documented():
    source = "".join(read(os.path.relpath(path, REPO)) for path in glob.glob(os.path.join(REPO, "relay", "**", "*.c"), recursive=True))
    source = re.sub(r'FAULT_POINT\w*\("[^"]*"', "", source)
    logged = set(re.findall(r'"((?:relay|queue|config|table|sink|delivery|key|event|database|claim|lease|settle|side|upkeep|schedule|archive|dead)\.[a-z_]+)"', source))
    table = read("docs/operations.md").split("| msg | level |")[1].split("\n\n")[0]
    assert set(re.findall(r"`([a-z]+\.[a-z_]+)`", table)) == logged


def test_files_named_by_the_architecture_exist():
    text = read("docs/architecture.md")
    names = set(re.findall(r"`((?:relay|ordering|sinks|sql|tests)/[\w./]*)`", text))
    assert len(names) > 10
    assert [name for name in sorted(names) if not os.path.exists(os.path.join(REPO, name))] == []


def c_test(suite, program):
    (path,) = glob.glob(os.path.join(REPO, "tests", suite, "**", f"{program}_test.c"), recursive=True)
    return read(os.path.relpath(path, REPO))


def test_every_test_that_the_security_page_names_exists():
    page, missing = read("docs/security.md"), []
    for function, file in re.findall(r"\[(test_\w+)\]\(\.\./(tests/[^)]+)\)", page):
        if f"def {function}(" not in read(file):
            missing.append(function)
    for test, suite, program in re.findall(r"\b(\w+) \(`(unit|contract)\.(\w+)`\)", page):
        if f"START_TEST({test})" not in c_test(suite, program):
            missing.append(test)
    missing += [name for name in re.findall(r"\bfuzz\.(\w+)", page) if not os.path.exists(os.path.join(REPO, f"tests/fuzz/{name}_fuzz.c"))]
    assert missing == []


def test_the_proof_page_counts_what_there_is():
    page = read("docs/proof.md")
    soon = sum(mutant.soon for mutant in MUTANTS)
    assert f"`tests/simulation/mutants.py` holds {len(MUTANTS)} changes" in page and f"; {soon} of them are tried in every run," in page
    broken = len({relay for relay, _, _ in MODEL_MUTANTS})
    assert f"finds out each of {broken} broken relays (" in page
    assert f"passes {len(LEGAL)} hand-made histories that are legal, and finds {len(ILLEGAL)} others," in page
    kept = {os.path.basename(folder): len(os.listdir(folder)) for folder in glob.glob(os.path.join(REPO, "tests/fuzz/corpus/*"))}
    assert {name: int(count) for name, count in re.findall(r"^\| (\w+) \| [^|]+ \| (\d+)\b[^|]*\|$", page, re.MULTILINE) if name in kept} == kept
    assert f", and {len(glob.glob(os.path.join(REPO, 'tests/unit/config/broken_configs/*.yaml')))} broken ones |" in page


def test_what_must_pass_before_a_change_lands_knows_that_it_is_that(tmp_path):
    """By hand, too: with CI=true the fuzzers get more time."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(os.path.join(REPO, ".ci", "run"), tmp_path / ".ci")
    (tmp_path / "dev").write_text('#!/bin/sh\necho "$1 CI=$CI"\n')
    (tmp_path / "dev").chmod(0o755)
    environment_of_a_person = {name: value for name, value in os.environ.items() if name != "CI"}
    done = subprocess.run([tmp_path / ".ci" / "run"], env=environment_of_a_person, capture_output=True, text=True, check=True)
    assert done.stdout == "lint CI=true\ntest CI=true\n"


def test_defaults_of_librdkafka_that_differ_are_as_documented():
    rows = re.search(r"## Defaults that differ.*?\n\n(.*?)\n\n", read("docs/sinks/kafka.md"), re.DOTALL).group(1).splitlines()[2:]
    shown = {}
    for names, values in (row.split("|")[1:3] for row in rows):
        names, values = re.findall(r"`([^`]+)`", names), values.replace("`", "").strip().split(", ")
        for number, name in enumerate(names):
            full = names[0].rsplit(".", 1)[0] + name if name.startswith(".") else name
            shown[full] = values[min(number, len(values) - 1)]
    table = re.search(r"defaults\[\] = \{\n(.*?)\n\};", read("sinks/kafka/kafka_conf.c"), re.DOTALL).group(1)
    in_code = dict(re.findall(r'\{"([^"]+)", "([^"]+)"\}', table))
    assert len(shown) > 10 and {name: in_code.get(name) for name in shown} == shown


# ---- the unit ----

@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_the_systemd_unit_is_valid_and_hardened(tmp_path):
    unit = tmp_path / "pgcourier.service"
    unit.write_text(read("packaging/pgcourier.service").replace("/usr/bin/pgcourier", binary()))
    for command in (["verify"], ["security", "--offline=true", "--threshold=15"]):
        done = subprocess.run(["systemd-analyze", *command, str(unit)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "pgcourier.service:" not in done.stderr
