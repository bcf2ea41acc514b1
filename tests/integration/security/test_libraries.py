"""The libraries that a relay runs with are told, and an old libpq with them."""

import re
import subprocess

import pytest

from tests.support.relay import binary, environment
from tests.support.servers import run_command, wait_until

LIBRARIES = r"libpq \d+\.\d+, librdkafka [\d.]+, libcurl [\d.]+, hiredis [\d.]+, libfyaml [\d.]+, jansson [\d.]+"
CONFIG = """database: {database}
sinks:
  out: {{ type: discard }}
queues:
  q: {{ sink: out }}
"""
OLD = "libpq 15.3 is older than 15.15, which mends CVE-2025-1094 and CVE-2025-12818"


@pytest.fixture
def old_libpq(tmp_path):
    """The environment in which libpq says that it is 15.3."""
    library, source = tmp_path / "old.so", tmp_path / "old.c"
    source.write_text("int PQlibVersion(void)\n{\n    return 150003;\n}\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return {"LD_PRELOAD": str(library)}


def test_the_version_has_those_of_the_libraries():
    assert re.fullmatch(rf"pgcourier [\d.]+\nwith {LIBRARIES}\n", run_command("--version").stdout)


def test_a_relay_logs_them_when_it_starts(db, relay):
    one = relay(CONFIG.format(database=db.dsn))
    wait_until(lambda: one.logged("relay.start"), 30, "the relay to start")
    assert one.stop() == 0
    assert re.search(rf'libraries="{LIBRARIES}"', one.logged("relay.start")[0])
    assert not one.logged("config.warning")


def test_an_old_libpq_is_warned_of(tmp_path, old_libpq):
    path = tmp_path / "pgcourier.yaml"
    path.write_text(CONFIG.format(database="host=/run/postgresql"))
    command = [binary(["release"]), "check-config", "-c", str(path)]
    assert OLD not in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    done = subprocess.run(command, env=environment(old_libpq), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1:] == [f"{path}: libpq: warning: {OLD}  fix: update it"]


def test_a_relay_that_has_an_old_libpq_says_so_and_delivers(db, relay, old_libpq):
    db.query("insert into outbox.events (aggregateid) values ('k')")
    one = relay(CONFIG.format(database=db.dsn), until_empty=True, env=old_libpq, program=binary(["release"]))
    assert one.wait(60) == 0
    assert len([line for line in one.logged("config.warning") if "setting=libpq" in line and OLD in line]) == 1
    assert db.value("select count(*) from outbox.events") == 0
