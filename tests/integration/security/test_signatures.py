"""A receiver tells the requests of a relay from forged ones, by the libraries that receivers have for it."""

import base64
import http.client
import itertools
import signal
import threading
from dataclasses import replace
from types import SimpleNamespace
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest

from tests.support.history import Event, Final, check
from tests.support.relay import binary
from tests.support.servers import Reply, wait_until
from tests.support.targets import HttpTarget
from tests.support.webhooks import NodeWebhooks, PythonWebhooks


def secret_of(text):
    return "whsec_" + base64.b64encode(text.encode().ljust(32)).decode()


OLD, NEW, STRANGE = secret_of("the old one"), secret_of("the new one"), secret_of("nobody's")

TABLE = """
create table public.hooks (id bigserial primary key, key text, event_id text, body jsonb, headers jsonb);
create index on public.hooks (key, id);
"""
CONFIG = """
database: "{dsn}"
sinks:
  hook: {{ type: http, url: "{url}/in", secrets_file: "{file}" }}
queues:
  hooks:
    table: public.hooks
    columns: {{ key: key, event_id: event_id, payload: body, headers: headers }}
    sink: hook
    retry: {{ base: 10ms, max: 10ms }}
"""
FORGED_NAMES = ["webhook-id", "Webhook_Id", "webhook_timestamp", "WEBHOOK_SIGNATURE", "webhook-Signature", "Event_Key"]


@pytest.fixture(params=[PythonWebhooks, NodeWebhooks], ids=["python", "node"])
def webhooks(request):
    if not request.param.available():
        pytest.skip("needs the package standardwebhooks: run ./dev setup")
    with request.param() as library:
        yield library


@pytest.fixture
def hooks(db, http, tmp_path):
    """The table, the file of the secrets, and the configuration that names it."""
    db.psql(TABLE)
    db.let_relay_in("public.hooks")
    file = tmp_path / "secrets"
    file.write_text(OLD + "\n")
    file.chmod(0o600)
    return SimpleNamespace(file=file, config=CONFIG.format(dsn=db.dsn, url=http.url, file=file),
                           left=lambda: db.value("select count(*) from public.hooks"))


def add(db, count, keys=20):
    return [Event(*row) for row in db.query("insert into public.hooks (key, body) select (n %% %s)::text, jsonb_build_object('n', n)"
                                            " from generate_series(1, %s) n returning id, key", (keys, count))]


def send(receiver, request):
    """The status of a request like this one."""
    connection = http.client.HTTPConnection("127.0.0.1", receiver.port)
    try:
        connection.request("POST", request.target, request.body, request.headers)
        return connection.getresponse().status
    finally:
        connection.close()


def forgeries(request):
    """Of a request that was accepted: {what is forged: the request}."""
    headers = request.headers
    return {
        "the body": replace(request, body=request.body.replace(b"1", b"2"), headers={**headers}),
        "its end": replace(request, body=request.body + b" ", headers={**headers, "content-length": str(len(request.body) + 1)}),
        "the id": replace(request, headers={**headers, "webhook-id": headers["webhook-id"] + "0"}),
        "the time": replace(request, headers={**headers, "webhook-timestamp": str(int(headers["webhook-timestamp"]) + 1)}),
        "where one ends": replace(request, headers={**headers, "webhook-id": "1.2", "webhook-timestamp": headers["webhook-timestamp"][1:]}),
        "the signature": replace(request, headers={**headers, "webhook-signature": "v1," + "A" * 43 + "="}),
        "no signature": replace(request, headers={name: value for name, value in headers.items() if name != "webhook-signature"}),
    }


def test_a_receiver_accepts_each_request_and_no_forged_one(db, relay, http, hooks, webhooks):
    """Also when it is sent again, whatever is in it."""
    http.rule(lambda request: True, Reply(500), times=3)
    http.respond = lambda request: Reply(200 if webhooks.accept(OLD, request) else 401)
    events = add(db, 40)
    for event_id, body in [("5f1b9a3e-0c1d-4f5e-8a6b-1c2d3e4f5a6b", '{"total": 12.50, "name": "Zo\u00eb \U0001f600"}'),
                           ("an id, 100 % \u00fc", "[]"), (None, '"a\\nb"'), (None, None)]:
        events.append(Event(*db.query("insert into public.hooks (key, event_id, body) values ('k', %s, %s) returning id, key", (event_id, body))[0]))
    assert relay(hooks.config, until_empty=True).wait(60) == 0
    check(events, HttpTarget(http).receipts(), final=Final(), attempts=12).require()
    assert [request.reply.status for request in http.requests if request.reply.status != 200] == [500] * 3
    assert all(webhooks.accept(OLD, request) for request in http.requests)
    assert not any(webhooks.accept(STRANGE, request) for request in http.requests)
    genuine = next(request for request in http.requests if b"1" in request.body and request.reply.status == 200)
    assert send(http, genuine) == 200, "what is compared with"
    assert {what: send(http, forged) for what, forged in forgeries(genuine).items()} == dict.fromkeys(forgeries(genuine), 401)


def test_secrets_are_replaced_under_load_and_no_request_is_refused(db, relay, http, hooks, webhooks):
    trusted = [OLD]
    http.respond = lambda request: Reply(200 if webhooks.accept(trusted[0], request) else 401, delay_s=0.01)
    events = add(db, 3000, keys=40)
    one = relay(hooks.config)

    def sign_with(number, *secrets):
        before = len(http.requests)
        wait_until(lambda: len(http.requests) > before + 400, 60, "some requests")
        hooks.file.write_text("".join(f"{secret}\n" for secret in secrets))
        one.send(signal.SIGHUP)
        wait_until(lambda: len(one.logged("config.loaded")) == number, 30, "the secrets to be read")

    sign_with(1, NEW, OLD)
    trusted[0] = NEW
    sign_with(2, NEW)
    assert hooks.left() > 0, "it was under load"
    wait_until(lambda: hooks.left() == 0, 60, "all to be delivered")
    assert one.stop() == 0
    assert [request.number for request in http.requests if request.reply.status != 200] == []
    check(events, HttpTarget(http).receipts()).require()
    phases = [(webhooks.accept(NEW, request), webhooks.accept(OLD, request)) for request in http.requests]
    assert [phase for phase, _ in itertools.groupby(phases)] == [(False, True), (True, True), (True, False)]
    both = http.requests[phases.index((True, True))]
    newest, _ = both.headers["webhook-signature"].split(" ")
    assert webhooks.accept(NEW, replace(both, headers={**both.headers, "webhook-signature": newest})), "in the order of the file"


def test_secrets_that_are_none_leave_the_old_ones_in_use(db, relay, http, hooks, webhooks):
    http.respond = lambda request: Reply(200 if webhooks.accept(OLD, request) else 401)
    one = relay(hooks.config)
    wait_until(lambda: one.logged("relay.start"), 30, "the relay to listen to signals")
    for number, (text, why) in enumerate([(f"{NEW}\nhunter2\n", "line 2: does not begin with whsec_; write whsec_ and the secret in base64"),
                                          (NEW[:20] + "\n", "line 1: has 10 bytes, and 24 are the least; make one: echo whsec_$(openssl rand -base64 32)"),
                                          ("\n", "is empty; put the secrets into it, one a line")], 1):
        hooks.file.write_text(text)
        one.send(signal.SIGHUP)
        wait_until(lambda number=number: len(one.logged("config.refused")) == number, 30, "a refusal")
        line = one.logged("config.refused")[-1]
        assert f'sinks.hook.secrets_file: file \\"{hooks.file}\\": {why}' in line and f"{one.config_path}:4:" in line
    add(db, 40)
    wait_until(lambda: hooks.left() == 0, 30, "all to be delivered")
    assert one.stop() == 0
    told = "\n".join(one.log)
    assert not any(secret in told for secret in ("hunter2", OLD[6:20], NEW[6:20]))
    assert all(webhooks.accept(OLD, request) for request in http.requests)


def test_a_request_that_cannot_be_signed_is_not_sent_and_no_attempt_is_counted(db, relay, http, hooks, tmp_path):
    http.respond = lambda request: Reply(200 if "webhook-signature" in request.headers else 422)
    events = add(db, 40)
    env = {"PGCOURIER_FAULT": ",".join(f"http.sign:{number}:error" for number in (1, 2, 5)), "PGCOURIER_FAULT_LOG": str(tmp_path / "faults")}
    config = hooks.config.replace("max: 10ms }", "max: 10ms, attempts: 1 }")
    assert relay(config, until_empty=True, env=env, program=binary(["dev"])).wait(60) == 0
    assert len((tmp_path / "faults").read_text().splitlines()) == 3
    check(events, HttpTarget(http).receipts(), final=Final()).require()
    assert db.value("select count(*) from outbox.dead") == 0


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass


@pytest.mark.skipif(not PythonWebhooks.available(), reason="needs the package standardwebhooks: run ./dev setup")
def test_an_event_cannot_put_its_own_values_in_place_of_what_is_signed(db, relay, hooks):
    """A receiver behind WSGI, where Webhook_Id and webhook-id are one variable."""
    seen = []

    def receive(environ, start_response):
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        headers = {name[5:].replace("_", "-").lower(): value for name, value in environ.items() if name.startswith("HTTP_")}
        seen.append(SimpleNamespace(body=body, headers=headers))
        start_response("200 OK", [("Content-Length", "0")])
        return []

    with make_server("127.0.0.1", 0, receive, handler_class=_Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        for name in FORGED_NAMES:
            db.query("insert into public.hooks (key, event_id, body, headers)"
                     " values ('k', 'genuine', '{}', jsonb_build_object(%s::text, 'forged', 'x_fine', 1))", (name,))
        config = CONFIG.format(dsn=db.dsn, url=f"http://127.0.0.1:{server.server_port}", file=hooks.file)
        assert relay(config, until_empty=True).wait(60) == 0
        server.shutdown()
        thread.join()
    with PythonWebhooks() as library:
        assert [library.accept(OLD, request) for request in seen] == [True] * len(FORGED_NAMES)
    assert [(request.headers["webhook-id"], request.headers["event-key"], request.headers["x-fine"]) for request in seen] == [
        ("genuine", "k", "1")] * len(FORGED_NAMES)
