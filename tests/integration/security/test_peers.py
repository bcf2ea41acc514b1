"""A relay talks to the servers that its configuration names, and to no other, whatever events and addresses say."""

import os
import shutil
import signal
import ssl
import subprocess
from urllib.parse import unquote

import pytest

from tests.support import servers
from tests.support.history import Event, Final, check
from tests.support.servers import HttpReceiver, run_command, wait_until
from tests.support.shop import Shop
from tests.support.targets import HttpTarget

CONFIG = """
database: "{dsn}"
sinks:
  web: {{ type: http, url: "http://me:pw@127.0.0.1:{port}/in?token=t" }}
queues:
  web: {{ sink: web, destination: "{destination}", retry: {{ base: 1ms, max: 1ms, attempts: 1 }} }}
"""
ELSEWHERE = ["//OTHER/x", "///OTHER/x", "/\\OTHER/x", "\\\\OTHER\\x", "@OTHER/", ":pw@OTHER/x", "http://OTHER/x", "?@OTHER/", "#@OTHER/",
             "%2f%2fOTHER/", "%40OTHER", "%2e%2e/%2e%2e/admin", "a?token=mine", ";@OTHER:80"]
REFUSED = ["..", "../admin", "..;/admin", "a/../../admin", ".", "/../OTHER", "x HTTP/1.1\r\nHost: OTHER\r\n\r\n", "a\tb"]


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
    dead = dict(db.query("select event_id, key from outbox.dead"))
    assert sorted(dead.values()) == sorted(REFUSED)
    events = [Event(number, key, doomed=number in dead) for number, key in enumerate(ELSEWHERE + REFUSED, 1)]
    receipts = [receipt._replace(key=unquote(receipt.key)) for receipt in HttpTarget(http).receipts()]
    check(events, receipts, final=Final(dead=list(dead))).require()


def sign(key, certificate, name):
    """A certificate that is an authority of its own."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=db.example",
                    "-addext", f"subjectAltName={name}", "-keyout", key, "-out", certificate], check=True, capture_output=True)


def test_a_receiver_gets_nothing_before_it_can_be_verified(relay, db, tmp_path):
    """Its authority is not known, then it has another name, then all is well."""
    key, certificate = tmp_path / "server.key", tmp_path / "server.crt"
    sign(key, certificate, "IP:127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    shop = Shop(db)
    shop.add(200, keys=20)
    with HttpReceiver(tls=context) as https:
        target = HttpTarget(https)
        one = relay(shop.config(target.sink()))
        wait_until(lambda: one.logged("sink.down"), 30, "the authority to be refused")
        one.configure(shop.config(target.sink(ca_file=str(certificate), url=https.url.replace("127.0.0.1", "localhost"))))
        one.send(signal.SIGHUP)
        wait_until(lambda: len(one.logged("sink.down")) >= 2, 30, "the name to be refused")
        assert https.requests == [] and shop.attempts() == 0
        one.configure(shop.config(target.sink(ca_file=str(certificate))))
        one.send(signal.SIGHUP)
        wait_until(lambda: shop.left() == 0, 30, "all to be delivered")
        assert one.stop() == 0
        assert shop.check(target.receipts()).duplicates == 0


@pytest.fixture
def encrypted(tmp_path):
    """A server whose certificate, an authority of its own, is for db.example: (the server, the certificate)."""
    server = servers.Postgres(settings={"ssl": "on"})
    key, certificate = (os.path.join(server.data, f"server.{end}") for end in ("key", "crt"))
    sign(key, certificate, "DNS:db.example")
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


PEERS = """database: {database}
sinks:
  out: {sink}
queues:
  q: {{ sink: out, destination: to }}
"""
HERE, NOWHERE = "host=/run/postgresql", "{ type: discard }"
UNVERIFIED = "is encrypted only if the server offers it, and its certificate is not verified: sslmode=prefer, libpq's default"
NO_ROOT = "is encrypted, but the server's certificate is not verified: sslmode=require has no root certificate"
VERIFY = "sslmode=verify-full sslrootcert=FILE"
REFUSED_PEER = f"what goes to db.example {UNVERIFIED}; write {VERIFY}, or sslmode=disable if the network itself is safe"
# The database, the sink, what the place points at, and the line after it.
EXPOSED = {
    "postgres": ("postgresql://me:s3cret@db.example/shop?sslmode=disable", NOWHERE, "postgresql:",
                 f"database: warning: what goes to db.example is not encrypted: sslmode=disable  fix: {VERIFY}"),
    "postgres without a root": ("host=db.example,/run/postgresql sslmode=require sslrootcert=/nonexistent password=s3cret", NOWHERE, "host=",
                                f"database: warning: what goes to db.example {NO_ROOT}  fix: {VERIFY}"),
    "redis": (HERE, '{ type: redis, url: "redis://:s3cret@cache.example" }', "redis://",
              "sinks.out.url: warning: what goes to cache.example is not encrypted: redis:// has no TLS  fix: "),
    "http": (HERE, '{ type: http, url: "http://me:s3cret@hooks.example/in?token=s3cret" }', "http://",
             "sinks.out.url: warning: what goes to hooks.example is not encrypted: http:// has no TLS  fix: https://"),
    "kafka": (HERE, '{ type: kafka, properties: { bootstrap.servers: "k1.example:9092,k2.example:9092" }, sasl_password: s3cret }', "properties:",
              "sinks.out.properties.security.protocol: warning: what goes to k1.example, k2.example is not encrypted: "
              "security.protocol is plaintext  fix: security.protocol: ssl"),
    "kafka unverified": (HERE, "{ type: kafka, properties: { bootstrap.servers: k1.example, security.protocol: ssl, "
                               'enable.ssl.certificate.verification: "false" } }', "false",
                         "sinks.out.properties.enable.ssl.certificate.verification: warning: what goes to k1.example is encrypted, but the "
                         "brokers' certificates are not verified: enable.ssl.certificate.verification is false  fix: remove it"),
}
SAFE = {
    "sockets": (HERE, '{ type: redis, url: "unix:///run/redis.sock" }'),
    "loopback": ("host=localhost,127.0.0.1,::1", '{ type: redis, url: "redis://127.0.0.1" }'),
    "http": ("host=db.example hostaddr=127.0.0.1", '{ type: http, url: "http://localhost:8080/" }'),
    "kafka": (HERE, '{ type: kafka, properties: { bootstrap.servers: "[::1]:9092,localhost:9092" } }'),
    "verified": ("postgresql://db.example/shop?sslmode=verify-full", '{ type: http, url: "https://hooks.example/" }'),
    "kafka verified": ("host=db.example sslmode=verify-ca", "{ type: kafka, properties: { bootstrap.servers: k1.example, security.protocol: ssl } }"),
}


def warnings_of(tmp_path, text, **env):
    """What check-config says after the line that all is well."""
    path = tmp_path / "pgcourier.yaml"
    path.write_text(text)
    done = run_command("check-config", "-c", str(path), env=env)
    first, *others = done.stdout.splitlines()
    assert (done.returncode, done.stderr, first) == (0, "", f"{path}: ok, 1 sink, 1 queue")
    return [line.removeprefix(f"{path}:") for line in others]


def place_of(text, token):
    before = text[:text.index(token)]
    return f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"


@pytest.mark.parametrize("database, sink, token, warning", EXPOSED.values(), ids=EXPOSED)
def test_a_peer_beyond_this_machine_without_verified_tls_is_warned_of(tmp_path, database, sink, token, warning):
    text = PEERS.format(database=database, sink=sink)
    (line,) = warnings_of(tmp_path, text)
    assert line.startswith(f"{place_of(text, token)}: {warning}")
    assert "s3cret" not in line


@pytest.mark.parametrize("database, sink", SAFE.values(), ids=SAFE)
def test_nothing_is_said_of_this_machine_and_of_verified_tls(tmp_path, database, sink):
    assert warnings_of(tmp_path, PEERS.format(database=database, sink=sink)) == []


def test_a_database_that_only_the_environment_names_is_warned_of(tmp_path):
    text = PEERS.format(database="x", sink=NOWHERE).split("\n", 1)[1]
    assert warnings_of(tmp_path, text, PGHOST="/run/postgresql") == []
    assert warnings_of(tmp_path, text, PGHOST="db.example", PGSSLMODE="verify-full") == []
    (line,) = warnings_of(tmp_path, text, PGHOST="db.example", PGSSLMODE="disable")
    assert line.startswith(" database: warning: what goes to db.example ")


def test_a_secret_in_a_file_has_its_place(tmp_path):
    (tmp_path / "conninfo").write_text("host=db.example password=s3cret sslmode=require sslrootcert=/nonexistent\n")
    os.chmod(tmp_path / "conninfo", 0o600)
    text = PEERS.format(database="x", sink=NOWHERE).replace("database: x", f"database_file: {tmp_path}/conninfo\nlisten_database: dbname=shop host=l.example sslmode=disable")
    first, second = warnings_of(tmp_path, text)
    assert first.startswith("1:16: database: warning: what goes to db.example ")
    assert second.startswith("2:18: listen_database: warning: what goes to l.example ")


# The lines of the configuration that name the database, the file of services, the environment, and where the refusal points.
REFUSED_DATABASES = {
    "url": ("database: postgresql://me:s3cret@db.example/shop", {}, "1:11: database"),
    "prefer": ("database: host=localhost,db.example sslmode=prefer password=s3cret", {}, "1:11: database"),
    "file": ("stats_interval: 1s\ndatabase_file: FOLDER/conninfo", {}, "2:16: database"),
    "listen": ("database: host=/run/postgresql\nlisten_database: host=db.example", {}, "2:18: listen_database"),
    "service": ("database: service=far", {"PGSERVICEFILE": "FOLDER/services"}, "1:11: database"),
    "environment": ("stats_interval: 1s", {"PGHOST": "db.example"}, "1:1: database"),
    "mode of the environment": ("database: host=db.example", {"PGSSLMODE": "prefer"}, "1:11: database"),
}


@pytest.mark.parametrize("lines, env, place", REFUSED_DATABASES.values(), ids=REFUSED_DATABASES)
@pytest.mark.parametrize("command", [["check-config"], ["run"], ["migrate"], ["status"]], ids=lambda command: command[0])
def test_a_database_that_would_be_talked_to_in_plain_text_unasked_is_refused(tmp_path, command, lines, env, place):
    (tmp_path / "conninfo").write_text("host=db.example password=s3cret\n")
    (tmp_path / "services").write_text("[far]\nhost=db.example\npassword=s3cret\n")
    path = tmp_path / "pgcourier.yaml"
    path.write_text(lines.replace("FOLDER", str(tmp_path)) + PEERS.split("{database}")[1].format(sink=NOWHERE))
    done = run_command(*command, "-c", str(path), env={name: value.replace("FOLDER", str(tmp_path)) for name, value in env.items()})
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr.removeprefix("pgcourier: ") == f"{path}:{place}: {REFUSED_PEER}\n"


def test_so_is_one_that_a_command_is_given(tmp_path):
    done = run_command("migrate", "-d", "postgresql://me:s3cret@db.example/shop")
    assert (done.returncode, done.stdout, done.stderr) == (78, "", f"pgcourier: database: {REFUSED_PEER}\n")


def test_such_a_database_does_not_take_the_place_of_another_when_the_configuration_is_read_again(db, relay):
    config = f'database: "{db.dsn}"\nsinks:\n  out: {{ type: discard }}\nqueues:\n  q: {{ sink: out }}\n'
    one = relay(config)
    wait_until(lambda: one.logged("relay.start"), 30, "the relay to start")
    one.configure(config.replace("host=127.0.0.1", "host=db.example"))
    one.send(signal.SIGHUP)
    wait_until(lambda: one.logged("config.refused"), 30, "a refusal")
    assert REFUSED_PEER in one.logged("config.refused")[0].replace("\\", "")
    db.query("insert into outbox.events (aggregateid) values ('k')")
    wait_until(lambda: db.value("select count(*) from outbox.events") == 0, 30, "the old configuration to go on")
    assert one.stop() == 0


def test_a_relay_warns_at_its_start_and_when_it_reads_the_configuration_again(db, relay):
    config = f'database: "{db.dsn}"\nsinks:\n  web: {{ type: http, url: "http://me:s3cret@HOST.invalid/" }}\nqueues:\n  q: {{ sink: web }}\n'
    one = relay(config.replace("HOST", "first"))
    wait_until(lambda: one.logged("config.warning"), 30, "a warning")
    one.configure(config.replace("HOST", "second"))
    one.send(signal.SIGHUP)
    wait_until(lambda: len(one.logged("config.warning")) == 2, 30, "another warning")
    assert one.stop() == 0
    place = f"{one.config_path}:{place_of(config, 'http://')}"
    for line, host in zip(one.logged("config.warning"), ("first", "second"), strict=True):
        assert f'level=warn msg=config.warning place={place} setting=sinks.web.url text="what goes to {host}.invalid ' in line
        assert "s3cret" not in line
