"""pgcourier without a subcommand's own work: help, version, what is misspelt, and check-config."""

import json
import pathlib
import re
import socket
import subprocess

import pytest

from tests.support.process import REPO
from tests.support.relay import binary, environment
from tests.support.servers import run_command

GOOD = """
sinks: { none: { type: discard } }
queues: { orders: { sink: none } }
"""


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_version_is_printed(option):
    result = run_command(option)
    assert result.returncode == 0
    assert re.fullmatch(r"pgcourier \d+\.\d+\.\d+\nwith [^\n]+\n", result.stdout)


@pytest.mark.parametrize("option", ["-h", "-?"])
def test_help_has_short_names(option):
    assert run_command(option).stdout == run_command("--help").stdout != ""


def test_help_lists_every_command_and_each_has_its_own():
    result = run_command("--help")
    assert result.returncode == 0
    commands = re.findall(r"^  ([a-z][a-z-]*) ", result.stdout, re.MULTILINE)
    assert "check-config" in commands
    for command in commands:
        own = run_command(command, "--help")
        assert own.returncode == 0, command
        assert f"Usage: pgcourier {command}" in own.stdout


@pytest.mark.parametrize("arguments, message", [
    (["chek-config"], 'pgcourier: no command "chek-config"; did you mean "check-config"?\n'),
    (["frobnicate"], 'pgcourier: no command "frobnicate"; see pgcourier --help\n'),
])
def test_unknown_command_is_a_usage_error(arguments, message):
    result = run_command(*arguments)
    assert (result.returncode, result.stdout, result.stderr) == (64, "", message)


@pytest.mark.parametrize("arguments", [[], ["check-config"], ["check-config", "--nonsense"], ["check-config", "-c"]])
def test_wrong_arguments_are_usage_errors(arguments):
    result = run_command(*arguments)
    assert result.returncode == 64
    assert result.stdout == ""
    assert "sage" in result.stderr


@pytest.mark.parametrize("arguments, message", [
    (["dead", "-c", "x"], "dead: say what to do: list, show, retry or drop"),
    (["dead", "list"], "dead: give the configuration with -c FILE"),
    (["dead", "list", "show", "-c", "x"], "dead: one of list, show, retry and drop at a time"),
    (["status"], "status: give the configuration with -c FILE"),
    (["replay", "--cancel", "1"], "replay: give the configuration with -c FILE"),
    (["run"], "run: give the configuration with -c FILE"),
    (["run", "-c", "x", "--log-format", "xml"], '--log-format is logfmt or json, not "xml"'),
    (["run", "-c", "x", "--log-level", "loud"], '--log-level is error, warn, info or debug, not "loud"'),
    (["migrate"], "migrate: give -c FILE or -d CONNINFO"),
    (["migrate", "-d", "x" * 5000], "-d: longer than "),
    (["publish", "-d", "x", "--header", b"a=\xff"], "not UTF-8"),
    (["bench"], "bench: give -c FILE or -d CONNINFO"),
    (["bench", "-d", "x", "--events", "0"], '--events is a number from 1 to 100000000, not "0"'),
    (["bench", "-d", "x", "--payload", "300b"], '--payload is a number from 64 to 10000000, not "300b"'),
    (["bench", "-d", "x", "--rate", "99999999999999999999"], "--rate is a number from 0 to 1000000, not "),
    (["bench", "-d", "x", "--sink", "web"], "--sink is one of a configuration's; give it with -c FILE"),
    (["bench", "-c", "x", "--destination", "web"], "--destination is for a sink; give it with --sink NAME"),
])
def test_usage_errors_name_what_is_wrong(arguments, message):
    result = subprocess.run([binary(), *arguments], env=environment(), capture_output=True, check=False)
    assert (result.returncode, result.stdout) == (64, b"")
    assert message in result.stderr.decode(errors="replace")


READABLE = "libpq cannot read this; write postgresql://USER@HOST/DATABASE or host=HOST dbname=DATABASE"


@pytest.mark.parametrize("command", [["bench"], ["bench", "--clean"], ["migrate"], ["failures"], ["schedule", "list"], ["take", "q"],
                                     ["done", "00000000-0000-0000-0000-000000000000"], ["publish", "--payload", "{}"]])
@pytest.mark.parametrize("conninfo, why", [
    ("host=/tmp port", READABLE), ("postgresql://u:s3cret@[bad", READABLE), ("nonsense=1", READABLE), ("postgresql:///x?nonsense=1", READABLE),
    ("host=/tmp password=my s3cret", READABLE), ("mysql://u:s3cret@h/x", "libpq knows no such URL; write postgresql://USER@HOST/DATABASE"),
])
def test_connection_string_that_libpq_cannot_read_is_a_usage_error_and_not_shown(command, conninfo, why):
    result = run_command(*command, "-d", conninfo)
    assert (result.returncode, result.stdout, result.stderr) == (64, "", f"pgcourier: {command[0]}: -d: {why}\n")


def test_log_is_json_for_who_asks(db, tmp_path):
    path = tmp_path / "good.yaml"
    path.write_text(f'database: "{db.dsn}"\n{GOOD}')
    result = run_command("run", "-c", str(path), "--until-empty", "--log-format", "json")
    assert result.returncode == 0, result.stderr
    assert [json.loads(line)["msg"] for line in result.stderr.splitlines()][-1] == "relay.end"


def test_reference_is_the_page_of_the_documentation():
    result = run_command("check-config", "--reference")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == (pathlib.Path(REPO) / "docs" / "configuration.md").read_text()


def test_sink_type_that_is_like_no_other_gets_the_list(tmp_path):
    path = tmp_path / "sink.yaml"
    path.write_text(GOOD.replace("discard", "pigeon"))
    result = run_command("check-config", "-c", str(path))
    assert result.returncode == 78
    assert re.search(r'no sink type "pigeon"; write one of .*discard', result.stderr)


@pytest.mark.parametrize("secret, message", [(b"a\0b\n", "holds a NUL byte; a secret is one line of text"), (None, "a single value")])
def test_secret_file_that_holds_none_is_refused(tmp_path, secret, message):
    name = '"{}"'.format(tmp_path / "secret") if secret else "{ a: b }"
    (tmp_path / "secret").write_bytes(secret or b"x")
    path = tmp_path / "sink.yaml"
    path.write_text(f'sinks: {{ web: {{ type: http, url: "http://127.0.0.1", bearer_token_file: {name} }} }}\nqueues: {{ o: {{ sink: web }} }}\n')
    result = run_command("check-config", "-c", str(path))
    assert result.returncode == 78 and message in result.stderr, result.stderr


def test_good_configuration_is_counted(tmp_path):
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    result = run_command("check-config", "-c", str(path))
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"{path}: ok, 1 sink, 1 queue\n"


def test_broken_configuration_ends_with_78_and_one_line(tmp_path):
    path = tmp_path / "broken.yaml"
    path.write_text(GOOD.replace("queues", "queus"))
    result = run_command("check-config", "-c", str(path))
    assert (result.returncode, result.stdout) == (78, "")
    assert result.stderr == f'{path}:3:1: queus: no such key; did you mean "queues"?\n'


def test_what_a_sink_refuses_has_a_place(db, tmp_path):
    path = tmp_path / "sink.yaml"
    path.write_text(f'database: "{db.dsn}"\nsinks:\n  log: {{ type: file, path: x, mode: "999" }}\nqueues:\n  orders: {{ sink: log }}\n')
    result = run_command("run", "-c", str(path), "--until-empty")
    assert result.returncode == 78
    assert f"pgcourier: {path}:3:3: sinks.log: " in result.stderr


def test_a_missing_right_ends_a_relay_with_77(db, pg, tmp_path):
    pg.query("drop role if exists stranger; create role stranger login")
    path = tmp_path / "good.yaml"
    path.write_text(f'database: "{pg.dsn(db.name, user="stranger")}"\n{GOOD}')
    result = run_command("run", "-c", str(path), "--until-empty")
    assert result.returncode == 77
    assert result.stderr.endswith("stranger has no USAGE on schema outbox  fix: grant outbox_relay to stranger;\n")


def test_missing_configuration_ends_with_78(tmp_path):
    result = run_command("check-config", "-c", str(tmp_path / "none.yaml"))
    assert result.returncode == 78
    assert result.stderr == f"{tmp_path}/none.yaml: cannot open: No such file or directory\n"


@pytest.mark.parametrize("command", [["run"], ["status"], ["migrate"], ["publish", "--key", "a"], ["dead", "list"]])
def test_a_missing_configuration_ends_every_command_with_78(tmp_path, command):
    result = run_command(*command, "-c", str(tmp_path / "none.yaml"))
    assert (result.returncode, result.stdout) == (78, "")
    assert result.stderr == f"pgcourier: {tmp_path}/none.yaml: cannot open: No such file or directory\n"


@pytest.mark.parametrize("command", [["run"], ["status"], ["publish", "--key", "a"], ["dead", "list"], ["dead", "retry", "--all"]])
def test_a_database_without_the_schema_names_the_remedy(empty_db, tmp_path, command):
    path = tmp_path / "good.yaml"
    path.write_text(f'database: "{empty_db.dsn}"\n{GOOD}')
    result = run_command(*command, "-c", str(path))
    assert (result.returncode, result.stdout) == (78, "")
    assert result.stderr.startswith("pgcourier: ") and result.stderr.count("\n") == 1
    assert result.stderr.endswith("; run pgcourier migrate\n")


@pytest.mark.parametrize("command", ["run", "status"])
def test_a_server_that_never_answers_ends_a_command_with_69(tmp_path, command):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        path = tmp_path / "good.yaml"
        path.write_text(f'database: "host=127.0.0.1 port={silent.getsockname()[1]} user=x dbname=x"\n{GOOD}')
        result = run_command(command, "-c", str(path), timeout_s=30)
    assert (result.returncode, result.stdout) == (69, "")
    assert "timeout expired" in result.stderr and result.stderr.count("\n") == 1


def run_as(tmp_path, dsn, command):
    path = tmp_path / "good.yaml"
    path.write_text(f'database: "{dsn}"\n{GOOD}')
    result = run_command(command, "-c", str(path), *(["--until-empty"] if command == "run" else []))
    assert result.stdout == "" and result.stderr.count("\n") == 1 and "LOCATION" not in result.stderr
    return result.returncode, " ".join(result.stderr.split("failed: ")[-1].split())


@pytest.mark.parametrize("command", ["run", "status"])
def test_a_connection_that_is_refused_ends_with_the_code_of_the_reason(db, pg, tmp_path, command):
    pg.query("drop role if exists barred")
    pg.query("create role barred nologin")
    assert run_as(tmp_path, pg.dsn("nowhere"), command) == (78, 'FATAL: database "nowhere" does not exist')
    assert run_as(tmp_path, pg.dsn(db.name, user="nobody_we_know"), command) == (77, 'FATAL: role "nobody_we_know" does not exist')
    assert run_as(tmp_path, pg.dsn(db.name, user="barred"), command) == (77, 'FATAL: role "barred" is not permitted to log in')
    pg.query("alter role barred login")
    db.query(f'revoke connect on database "{db.name}" from public')
    code, text = run_as(tmp_path, pg.dsn(db.name, user="barred"), command)
    assert (code, text.partition(";")[0]) == (77, f'FATAL: permission denied for database "{db.name}" DETAIL: User does not have CONNECT privilege.')


SINKS = {  # what only a sink itself can say of its settings
    "a folder for a file": ('type: file, path: "{folder}"', "cannot open {folder} to append: Is a directory; name a file in it"),
    "no such folder": ('type: file, path: "{folder}/none/x"', "cannot open {folder}/none/x to append: No such file or directory; create its directory"),
    "a mode that is none": ('type: file, path: "{folder}/x", mode: "999"', "mode `999` is not a file permission"),
    "a property": ("type: kafka, properties: {{ bootstrap.servers: nowhere.invalid, linger.ms: soon }}", "kafka properties: linger.ms: "),
    "certificates of kafka": ('type: kafka, properties: {{ bootstrap.servers: nowhere.invalid, security.protocol: ssl, ssl.ca.location: "{folder}/none.pem" }}',
                              "kafka properties: ssl.ca.location: cannot read {folder}/none.pem: No such file or directory"),
    "certificates of http": ('type: http, url: "https://nowhere.invalid", ca_file: "{folder}/none.pem"', "none.pem"),
    "a user of redis": ('type: redis, url: "redis://nowhere.invalid", username: x', "username without a password; set password"),
}


@pytest.mark.parametrize("wrong", SINKS)
def test_what_only_a_sink_knows_is_said_before_it_runs(tmp_path, wrong):
    settings, text = (part.format(folder=tmp_path) for part in SINKS[wrong])
    path = tmp_path / "sink.yaml"
    path.write_text(f'sinks:\n  bus: {{ {settings} }}\nqueues:\n  orders: {{ sink: bus, destination: "x" }}\n')
    result = run_command("check-config", "-c", str(path))
    assert (result.returncode, result.stdout) == (78, "")
    assert result.stderr.startswith(f"{path}:2:3: sinks.bus: ") and text in result.stderr, result.stderr
    assert result.stderr.count("\n") == 1


def test_checking_a_sink_leaves_nothing_behind_and_calls_nobody(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        path = tmp_path / "sinks.yaml"
        path.write_text(f"""sinks:
  file: {{ type: file, path: "{tmp_path}/out.jsonl" }}
  bus: {{ type: kafka, properties: {{ bootstrap.servers: "127.0.0.1:{port}" }} }}
  web: {{ type: http, url: "http://127.0.0.1:{port}" }}
  stream: {{ type: redis, url: "redis://127.0.0.1:{port}" }}
queues:
  orders: {{ sink: file }}
""")
        result = run_command("check-config", "-c", str(path))
        assert (result.returncode, result.stderr) == (0, "")
        assert [entry.name for entry in tmp_path.iterdir()] == ["sinks.yaml"]
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
