"""A relay that cannot listen delivers all the same, says so once, and does not hammer the server."""

import socket
import threading
import time

import pytest

from tests.support.journal import read_lines
from tests.support.servers import wait_until

CONFIG = """
database: "{dsn}"
listen_database: "{listen_dsn}"
sinks:
  log: {{ type: file, path: "{out}" }}
queues:
  orders: {{ table: public.events, columns: {{ key: order_id }}, sink: log, destination: "orders" }}
"""
CONNECTIONS = 11
LEAST_S = 0.6  # 10 waits that double from 50 ms to 2 s, each cut at random: 5 s on average


class NoListen:
    """Passes a server's connections on, and cuts each at its LISTEN, as a pooler that forbids it does."""

    def __init__(self, port):
        self.server_port = port
        self.accepted = []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            self.accepted.append(time.monotonic())
            server = socket.create_connection(("127.0.0.1", self.server_port))
            threading.Thread(target=self._pass, args=(client, server), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client), daemon=True).start()

    @staticmethod
    def _pass(source, to):
        try:
            while (data := source.recv(65536)) and b"listen " not in data:
                to.sendall(data)
        except OSError:
            pass
        for end in (source, to):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


@pytest.fixture
def no_listen(pg):
    proxy = NoListen(pg.port)
    yield proxy
    proxy.socket.close()


def test_listen_that_always_fails_is_tried_ever_more_seldom_and_delays_nothing(db, pg, relay, no_listen, tmp_path):
    db.psql("create table public.events (id bigserial primary key, order_id bigint); create index on public.events (order_id, id);"
            "select outbox.install_wake('public.events')")
    db.let_relay_in("public.events")
    out = tmp_path / "out.jsonl"
    listen_dsn = db.dsn.replace(f"port={pg.port}", f"port={no_listen.port}")
    one = relay(CONFIG.format(dsn=db.dsn, listen_dsn=listen_dsn, out=out))
    wait_until(lambda: len(no_listen.accepted) >= CONNECTIONS, 60, "the relay to try often enough")
    assert no_listen.accepted[CONNECTIONS - 1] - no_listen.accepted[0] > LEAST_S
    db.query("insert into public.events (order_id) values (7)")
    wait_until(lambda: out.exists() and [event["id"] for event in read_lines(out)] == [1], 20,
               "the event to arrive")
    assert one.stop() == 0
    assert len(one.logged("connection=waking")) == 1
