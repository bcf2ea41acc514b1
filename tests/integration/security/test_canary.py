"""A canary stands for each secret, given in each of the ways there are: it is used, things go wrong, and then it is nowhere
that others can read."""

import base64
import os
import resource
import shutil
import signal
import socket
import subprocess
import tempfile

import pytest

from tests.support.process import as_user, unprivileged_user, wait_until
from tests.support.relay import binary, environment
from tests.support.servers import Reply, free_port, run_command

CANARY = "canary-7f3a"

# A secret in each of the ways to give one: in a URL, by an environment variable, by a file.
CONFIG = """
database: "{dsn} password=${{CANARY_DATABASE}}"
sinks:
  token: {{ type: http, url: "http://127.0.0.1:{http}/in?token={canary}-query", bearer_token_file: "{file}",
           headers: {{ X-Key: "${{CANARY_HEADER}}" }}, secrets: ["${{CANARY_SIGNING}}", "{signing}"] }}
  user: {{ type: http, url: "http://me:{canary}-url@127.0.0.1:{http}/in" }}
  away: {{ type: http, url: "http://me:{canary}-url@127.0.0.1:{closed}/in?token={canary}-query" }}
  mem: {{ type: redis, url: "redis://me:{canary}-redis@127.0.0.1:{redis}/0" }}
  mem_file: {{ type: redis, url: "redis://127.0.0.1:{redis}/0", password_file: "{file}" }}
  bus: {{ type: kafka, down_after: 100ms, sasl_password: "${{CANARY_KAFKA}}", properties: {{ bootstrap.servers: "127.0.0.1:{closed}",
         security.protocol: sasl_plaintext, sasl.mechanism: PLAIN, sasl.username: me }} }}
queues:
"""
QUEUE = """
  q_{sink}: {{ sink: {sink}, destination: "d", where: "e.type = '{sink}'", retry: {{ base: 1ms, max: 1ms, attempts: 2 }} }}
"""
SINKS = ["token", "user", "away", "mem", "mem_file", "bus"]
IN_BASE64 = base64.b64encode(CANARY.encode()).decode()[:14]  # of which the rest does not depend on what comes after it
SIGNING = "whsec_" + base64.b64encode(f"{CANARY} that signs requests".encode()).decode()
ENVIRONMENT = {**{f"CANARY_{name}": f"{CANARY}-{name}" for name in ("DATABASE", "HEADER", "KAFKA")}, "CANARY_SIGNING": SIGNING}


@pytest.fixture
def config(db, redis, http, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text(f"{CANARY}-file\n")
    text = CONFIG.format(dsn=db.dsn, canary=CANARY, http=http.port, redis=redis.port, closed=free_port(), file=secret, signing=SIGNING)
    return text + "".join(QUEUE.format(sink=sink) for sink in SINKS)


def command_line(pid):
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read().decode()


def refuse(request):
    """And says what it refuses, header and all."""
    return Reply(401 if request.headers["event-key"] == "locked" else 422, body=str(request.headers).encode())


def test_no_secret_is_shown_by_a_relay_whose_sinks_all_fail(db, relay, http, config, pg):
    http.respond = refuse
    for sink in SINKS:
        db.query("insert into outbox.events (aggregateid, type) values ('locked', %s), ('bad', %s)", (sink, sink))
    one = relay(config, arguments=["--log-level=debug"], env=ENVIRONMENT)
    for sink in SINKS:
        trouble = f"msg=(sink.down|delivery.dead) (sink={sink}|queue=q_{sink})\\b"
        wait_until(lambda trouble=trouble: one.logged(trouble), 60, f"trouble with {sink}")
    db.query("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()")
    wait_until(lambda: one.logged("msg=database.(down|unreachable)"), 60, "a lost connection")
    wait_until(lambda: db.value("select count(*) from outbox.dead") == 2 or None, 60, "the dead letters of http")
    assert CANARY not in command_line(one.pid)
    commands = [run_command(*command, "-c", one.config_path, env=ENVIRONMENT)
                for command in (["check-config"], ["check-config", "--database"], ["status"], ["dead", "list"])]
    activity = db.query("select query, application_name from pg_stat_activity")
    rows = db.query("select row_to_json(d)::text from outbox.dead d union all select row_to_json(p)::text from outbox.parked p")
    assert one.stop() in (0, 75)
    used = {value for request in http.requests for value in request.headers.values()}
    assert {f"Bearer {CANARY}-file", f"{CANARY}-HEADER"} <= used  # else nothing could have been shown
    told = ["\n".join(one.log), *(done.stdout + done.stderr for done in commands), f"{activity}{rows}"]
    assert all("v1," in request.headers["webhook-signature"] for request in http.requests if "token=" in request.target)
    assert [text for text in told if CANARY in text or IN_BASE64 in text] == []
    with open(pg.log_path) as file:
        assert CANARY not in file.read()


HTTP, REDIS = 'type: http, url: "http://h/"', 'type: redis, url: "redis://h/"'
KAFKA = "type: kafka, properties: { bootstrap.servers: h, security.protocol:"
BROKEN = [
    *(f"type: http, url: \"{url}\"" for url in (
        "http://me:CANARY@h:bad/", "ftp://me:CANARY@h/", "http://me:CANARY@h/x y", "http://h/?t=CANARY y", "ftp://h/?t=CANARY",
        "http//me:CANARY@h", "http:/me:CANARY@h/", "http://me:CANARY/a@h/", "http://h/?t=CANARY#f")),
    *(f"type: redis, url: \"{url}\"" for url in (
        "redis://me:CANARY@h:99999/", "redis://me:CANARY@h/x", "redis://me:CANARY%zz@h/", "redis://h/?password=CANARY", "redis://CANARY@h/")),
    HTTP + ', proxy: "ftp://me:CANARY@h"',
    HTTP + ', headers: { X: "CANARY\\r\\nEvil: 1" }',
    HTTP + ', headers: { "X Y": "CANARY" }',
    HTTP + ', headers: { X: ["CANARY"] }',
    HTTP + ', headers: { Authorization: "CANARY" }, bearer_token: "CANARY"',
    HTTP + ', bearer_token: "CANARY\\nX"',
    HTTP + ', bearer_token: ["CANARY"]',
    HTTP + ', bearer_tokn: "CANARY"',
    HTTP + ', bearer_token: "CANARY", bearer_token: "CANARY"',
    HTTP + ', bearer_token: "CANARY", bearer_token_file: "/none"',
    HTTP + ', secrets: ["CANARY"]',
    HTTP + ', secrets: ["whsec_IN_BASE64"]',
    HTTP + ', secrets: ["SIGNING", "SIGNING-"]',
    HTTP + ', secrets: ["SIGNINGAAAA SIGNING"]',
    HTTP + ', secrets: "SIGNING"',
    HTTP + ', secrets: ["SIGNING"], secrets_file: "/none"',
    REDIS + ', password: "CANARY${"',
    REDIS + ', password: "CANARY${NO_SUCH}"',
    REDIS + ', password: "CANARY\\0"',
    REDIS + ', password: "CANARY',
    KAFKA + ' ssl, ssl.key.pem: "CANARY" }',
    KAFKA + ' ssl, ssl.certificate.pem: "CANARY" }',
    KAFKA + ' ssl, ssl.keystore.location: /dev/null, ssl.keystore.password: "CANARY" }',
    KAFKA + ' sasl_ssl, sasl.mechanism: NONE, sasl.password: "CANARY" }',
    KAFKA + ' sasl_ssl, sasl.passwrd: "CANARY" }',
    KAFKA + ' none }, sasl_password: "CANARY"',
]
DATABASES = ["postgres://me:CANARY@h/x?no_such=1", "password=CANARY no_such=1", "mysql://me:CANARY@h/x", "password='CANARY", "${CANARY"]


@pytest.mark.parametrize("database, sink", [*(("x", sink) for sink in BROKEN), *((text, "type: discard") for text in DATABASES)])
def test_no_message_about_a_configuration_repeats_a_secret(tmp_path, database, sink):
    path = tmp_path / "pgcourier.yaml"
    text = f'database: "{database}"\nsinks:\n  s: {{ {sink} }}\nqueues:\n  q: {{ sink: s, destination: d }}\n'
    path.write_text(text.replace("CANARY", CANARY).replace("SIGNING", SIGNING).replace("IN_BASE64", IN_BASE64))
    done = run_command("check-config", "-c", str(path))
    assert done.returncode == 78 and done.stderr
    assert CANARY not in done.stdout + done.stderr and IN_BASE64 not in done.stdout + done.stderr


@pytest.fixture
def folder():
    """One that the other user may write a core into, and who is not root may not see into ours."""
    with tempfile.TemporaryDirectory() as path:
        shutil.chown(path, unprivileged_user() or os.geteuid())
        os.chmod(path, 0o755)
        yield path


@pytest.fixture
def start(folder):
    """A function: starts a command as another user than root, with a canary in its environment, where it may leave a core."""
    processes = []
    everything = (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2

    def started(command):
        process = subprocess.Popen(as_user(command, unprivileged_user()), cwd=folder, env=environment({"PGPASSWORD": CANARY}),
                                   stdin=subprocess.DEVNULL,
                                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, everything))
        processes.append(process)
        return process

    yield started
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture
def stalled(start, folder):
    """A function: starts `migrate -d` with a canary for a password, and returns when it waits for a server that accepts and
    says nothing more."""
    connections = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)

        def connected(built):
            program = shutil.copy(built, folder)
            conninfo = f"postgresql://me:{CANARY}@127.0.0.1:{server.getsockname()[1]}/x?gssencmode=disable&connect_timeout=600"
            process = start([program, "migrate", "-d", conninfo])
            connections.append(server.accept()[0])
            return process

        yield connected
        for connection in connections:
            connection.close()


@pytest.fixture
def open_to_others(start):
    """A process like `stalled`'s, which keeps nothing to itself: what can be had of it can be had here."""
    process = start(["sleep", "600"])
    wait_until(lambda: command_line(process.pid).startswith("sleep"), 60, "the program to be started")
    return process


def peek(process):
    """Its environment, as its user reads it: (what is shown, what is said)."""
    done = subprocess.run(as_user(["cat", f"/proc/{process.pid}/environ"], unprivileged_user()), capture_output=True, text=True, check=False)
    return done.stdout, done.stderr


def owner(process):
    """Of its files in /proc: root where the process is not dumpable (proc(5)), which is what core files depend on as well."""
    return os.stat(f"/proc/{process.pid}/environ").st_uid


def leaves_a_core(process):
    """Wherever core_pattern has it go, a file or a program: the kernel says whether it was written."""
    os.kill(process.pid, signal.SIGQUIT)
    _, status = os.waitpid(process.pid, 0)
    process.returncode = status
    assert os.WTERMSIG(status) == signal.SIGQUIT
    return os.WCOREDUMP(status)


def test_a_password_in_an_argument_is_gone_before_it_is_used(stalled):
    process = stalled(binary())
    shown = command_line(process.pid)
    assert "migrate" in shown and CANARY not in shown


def test_other_processes_of_its_user_do_not_read_its_environment(stalled, open_to_others):
    process = stalled(binary(["release"]))
    assert CANARY in peek(open_to_others)[0]
    shown, said = peek(process)
    assert shown == "" and "Permission denied" in said
    assert owner(process) != owner(open_to_others)


def test_it_leaves_no_core(stalled, open_to_others, folder):
    process = stalled(binary(["release"]))
    if not leaves_a_core(open_to_others):
        pytest.skip("nobody can leave a core here: see /proc/sys/kernel/core_pattern and `ulimit -Hc`")
    for core in os.listdir(folder):  # where core_pattern has a name without a process, the next would only replace it
        if core.startswith("core"):
            os.remove(os.path.join(folder, core))
    assert not leaves_a_core(process)
    assert not [name for name in os.listdir(folder) if name.startswith("core")]
