"""A relay talks to the servers that its configuration names, and to no other, whatever events and addresses say."""

import os
import shutil
import subprocess

import pytest

from tests.support import servers
from tests.support.servers import run_command, wait_until

CONFIG = """
database: "{dsn}"
sinks:
  web: {{ type: http, url: "http://me:pw@127.0.0.1:{port}/in?token=t" }}
queues:
  web: {{ sink: web, destination: "{destination}", retry: {{ base: 1ms, max: 1ms, attempts: 1 }} }}
"""
ELSEWHERE = ["//OTHER/x", "///OTHER/x", "/\\OTHER/x", "\\\\OTHER\\x", "@OTHER/", ":pw@OTHER/x", "http://OTHER/x", "?@OTHER/", "#@OTHER/",
             "%2f%2fOTHER/", "%40OTHER", "%2e%2e/%2e%2e/admin", "..;/admin", "a?token=mine", ";@OTHER:80"]
REFUSED = ["..", "../admin", "a/../../admin", ".", "/../OTHER", "x HTTP/1.1\r\nHost: OTHER\r\n\r\n", "a\tb"]


@pytest.mark.parametrize("destination, prefix", [("{type}", ""), ("a/{type}", "a/")], ids=["alone", "within"])
def test_an_event_cannot_choose_the_host(db, relay, http, destination, prefix):
    with servers.HttpReceiver() as other:
        name = f"127.0.0.1:{other.port}"
        for text in ELSEWHERE + REFUSED:
            db.query("insert into outbox.events (aggregateid, type) values (%s, %s)", (text, text.replace("OTHER", name)))
        one = relay(CONFIG.format(dsn=db.dsn, port=http.port, destination=destination), until_empty=True)
        assert one.wait(60) == 0
        assert other.requests == []
        paths = [request.target for request in http.requests]
        assert {request.headers["host"] for request in http.requests} == {f"127.0.0.1:{http.port}"}
    assert [path for path in paths if not (path.startswith(f"/in/{prefix}") and path.endswith("?token=t") and path.count("?") == 1)] == []
    assert [path for path in paths if "/../" in path or "%2f" in path.lower().replace("%252f", "") or "#" in path] == []
    assert len(paths) == len(ELSEWHERE)
    assert sorted(key for key, in db.query("select key from outbox.dead")) == sorted(REFUSED)


@pytest.fixture
def encrypted(tmp_path):
    """A server whose certificate, an authority of its own, is for db.example: (the server, the certificate)."""
    server = servers.Postgres(settings={"ssl": "on"})
    key, certificate = (os.path.join(server.data, f"server.{end}") for end in ("key", "crt"))
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=db.example",
                    "-addext", "subjectAltName=DNS:db.example", "-keyout", key, "-out", certificate], check=True, capture_output=True)
    os.chmod(key, 0o600)
    if server.user:
        shutil.chown(key, server.user)
        shutil.chown(certificate, server.user)
    with server:
        yield server, shutil.copy(certificate, tmp_path)


def test_the_name_of_the_database_server_is_verified_when_asked_for(encrypted, relay, tmp_path):
    server, authority = encrypted
    database = server.create_database()
    verified = f"hostaddr=127.0.0.1 sslmode=verify-full sslrootcert={authority}"
    assert run_command("migrate", "-d", database.owner_dsn.replace("host=127.0.0.1", f"host=db.example {verified}")).returncode == 0
    database.create_logins()
    config = f'database: "{database.dsn.replace("host=127.0.0.1", f"host=HOST {verified}")}"\nsinks:\n  out: {{ type: discard }}\nqueues:\n  q: {{ sink: out }}\n'
    assert relay(config.replace("HOST", "db.example"), until_empty=True).wait(60) == 0
    other = relay(config.replace("HOST", "other.example"))
    wait_until(lambda: other.logged("does not match host name"), 60, "the relay to refuse another name")
