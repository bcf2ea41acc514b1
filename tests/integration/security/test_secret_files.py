"""Files with secrets that others can get at are told, with what to do."""

import os
import signal
import subprocess

import pytest

from tests.support.servers import run_command, wait_until

CONFIG = """database_file: {folder}/database
sinks:
  web: {{ type: http, url: "https://hooks.example/", bearer_token_file: {folder}/web, ca_file: {folder}/ca,
         secrets_file: {folder}/sign }}
  mem: {{ type: redis, url: "unix:///run/redis.sock", password_file: "${{SECRETS}}/mem" }}
  bus: {{ type: kafka, sasl_password_file: {folder}/bus, ssl_key_password_file: {folder}/key,
         properties: {{ bootstrap.servers: localhost, ssl.key.location: {folder}/pem, ssl.ca.location: {folder}/ca }} }}
queues:
  web: {{ sink: web, table: a }}
  mem: {{ sink: mem, destination: d, table: b }}
  bus: {{ sink: bus, destination: d, table: c }}
"""
SETTINGS = {"database": "database_file", "web": "sinks.web.bearer_token_file", "sign": "sinks.web.secrets_file", "mem": "sinks.mem.password_file",
            "bus": "sinks.bus.sasl_password_file", "key": "sinks.bus.ssl_key_password_file",
            "pem": "sinks.bus.properties.ssl.key.location"}

TEXTS = {"database": "host=/run/postgresql", "sign": "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX\n"}


@pytest.fixture
def secrets(tmp_path):
    """A folder with a file for each, and the configuration that names them."""
    for name in SETTINGS:
        (tmp_path / name).write_text(TEXTS.get(name, "secret"))
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=x",
                    "-keyout", tmp_path / "pem", "-out", tmp_path / "ca"], check=True, capture_output=True)
    for name in [*SETTINGS, "ca"]:
        os.chmod(tmp_path / name, 0o644 if name == "ca" else 0o600)
    path = tmp_path / "pgcourier.yaml"
    path.write_text(CONFIG.format(folder=tmp_path))
    return path


def warnings_of(path):
    done = run_command("check-config", "-c", str(path), env={"SECRETS": str(path.parent)})
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()[1:]


def place_of(path, name):
    """Of the value that names the file: LINE:COLUMN."""
    lines = path.read_text().splitlines()
    value = f"${{SECRETS}}/{name}" if name == "mem" else f"{path.parent}/{name}"
    number = next(number for number, line in enumerate(lines) if value in line)
    return f"{number + 1}:{lines[number].index(value) + 1}"


def test_files_for_their_reader_alone_are_fine(secrets):
    assert warnings_of(secrets) == []


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("mode, why", [(0o644, "may be read by everybody"), (0o620, "may be written by its group")])
def test_a_secret_that_others_can_get_at_is_told_with_the_file_and_what_to_do(secrets, name, mode, why):
    os.chmod(secrets.parent / name, mode)
    assert warnings_of(secrets) == [f'{secrets}:{place_of(secrets, name)}: {SETTINGS[name]}: warning: file "{secrets.parent}/{name}" {why}  '
                                    "fix: chmod 600, or 640 and root's"]


@pytest.mark.parametrize("setting", ["ssl.keystore.location", "sasl.kerberos.keytab"])
def test_so_is_each_other_file_with_a_secret_of_kafkas(secrets, setting):
    folder = secrets.parent
    subprocess.run(["openssl", "pkcs12", "-export", "-in", folder / "ca", "-inkey", folder / "pem", "-passout", "pass:changeit", "-out", folder / "p12"],
                   check=True, capture_output=True)
    os.chmod(folder / "p12", 0o644)
    secrets.write_text(f"""database: "host=/run/postgresql"
sinks:
  bus:
    type: kafka
    properties:
      bootstrap.servers: localhost
      security.protocol: ssl
      ssl.keystore.password: changeit
      {setting}: {folder}/p12
      ssl.ca.location: {folder}/ca
queues: {{ bus: {{ sink: bus, destination: d }} }}
""")
    # librdkafka 2.0 does not free what it reads of a keystore.
    done = run_command("check-config", "-c", str(secrets), env={"ASAN_OPTIONS": "detect_leaks=0"})
    at = secrets.read_text().splitlines()[8].index(str(folder)) + 1
    assert done.stdout.splitlines()[1:] == [f'{secrets}:9:{at}: sinks.bus.properties.{setting}: warning: file "{folder}/p12" may be read by everybody  '
                                            "fix: chmod 600, or 640 and root's"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a file of root's is lent to a group")
def test_a_secret_of_roots_may_be_read_by_a_group_as_those_mounted_into_containers_are(secrets):
    for name in SETTINGS:
        os.chmod(secrets.parent / name, 0o440)
    assert warnings_of(secrets) == []


def test_a_relay_says_it_when_it_starts_and_when_it_reads_the_configuration_again(db, relay, tmp_path):
    secret = tmp_path / "database"
    secret.write_text(db.dsn)
    os.chmod(secret, 0o604)
    one = relay(f"database_file: {secret}\nsinks:\n  out: {{ type: discard }}\nqueues:\n  q: {{ sink: out }}\n")
    wait_until(lambda: one.logged("config.warning"), 30, "a warning")
    one.send(signal.SIGHUP)
    wait_until(lambda: len(one.logged("config.warning")) == 2, 30, "another")
    assert one.stop() == 0
    for line in one.logged("config.warning"):
        assert f"place={one.config_path}:1:16 setting=database_file" in line and "may be read by everybody" in line and db.dsn not in line
