"""Relays that are there whatever becomes of them: each has its place, a way of its own to the database and to the sink,
and a successor when it ends.

    with Fleet(shop, target, peer_port=http.port, url="http://127.0.0.1:{port}/in/{name}") as fleet:
        with fleet.places[0].busy: ... fleet.places[0].kill() ...
        fleet.look_after()              # from time to time
"""

import signal
import threading

from tests.support.process import stands_still, wait_until
from tests.support.proxy import Proxy
from tests.support.relay import Relay

CONNECTIONS, KEYS, PER_KEY = 4, 8, 4
KEYS_MOST = 4 * KEYS  # that a claim may come to hold while a slow delivery keeps it open
SINK_IN_FLIGHT = 16
LOCK_CLASS = 4711
ENDS_AT_START = {69, 75}  # the database was away, or locked: what a supervisor starts again

QUEUE = {"connections": CONNECTIONS, "keys_per_claim": KEYS, "max_events_per_key": PER_KEY,
         "lock_class": LOCK_CLASS, "retry": "{ base: 20ms, max: 200ms, attempts: 1000 }"}


class Place:
    """One relay and its successors. `busy` is held by whoever does something to it."""

    def __init__(self, fleet, number, to_sink):
        self.fleet, self.number = fleet, number
        self.to_database, self.to_sink = Proxy(fleet.shop.db.server.port), to_sink
        self.busy = threading.Lock()
        self.relay, self.relays, self.name = None, [], None

    def config(self, **queue):
        sink = self.fleet.sink(self.to_sink, self.name)
        db = self.fleet.shop.db
        database = db.dsn.replace(f"port={db.server.port}", f"port={self.to_database.port}")
        return self.fleet.shop.config(sink, self.name, database=f"{database} application_name={self.name}",
                                      **{**self.fleet.target.queue, **QUEUE, **queue})

    def start(self):
        self.name = f"relay-{self.number}.{len(self.relays)}"
        self.relay = Relay(self.config(), program=self.fleet.program)
        self.relays.append(self.relay)
        self.relay.start()

    def restart_if_ended(self):
        """One that found no database when it began; every other end of its own is a defect."""
        code = self.relay.exit_code
        if code is None:
            return
        assert code in ENDS_AT_START and not self.relay.logged("msg=relay.start"), \
            f"{self.name} ended by itself with {code}\n{self.relay.process.log_tail()}"
        self.fleet.false_starts += 1
        self.start()

    def pause(self):
        self.relay.pause()
        wait_until(lambda: self.relay.exit_code is not None or stands_still(self.relay.pid), 60, "a relay to stand still")

    def kill(self):
        self.relay.kill()

    def stop(self):
        """SIGTERM. True when it left nothing undone; a relay that was only about to start has nothing."""
        began = self.relay.logged("msg=relay.start")
        code = self.relay.stop(timeout_s=60)
        assert code == 0 or code == 75 or not began and code in (*ENDS_AT_START, -signal.SIGTERM), \
            f"{self.name} ended with {code} on SIGTERM\n{self.relay.process.log_tail()}"
        return code == 0 or not began


class Fleet:
    """sink: a function (proxy, relay's name) -> the inside of a sink's YAML mapping. shared: the one way to the sink that
    all take, a started Proxy; else each has its own to `peer_port`; None: there is none."""

    def __init__(self, shop, target, sink, relays=4, peer_port=None, shared=None, program=None):
        self.shop, self.target, self.sink, self.program = shop, target, sink, program
        self.false_starts = 0
        own = [Proxy(peer_port) if peer_port else shared for _ in range(relays)]
        self.places = [Place(self, number, proxy) for number, proxy in enumerate(own)]
        self._proxies = [place.to_database for place in self.places] + (own if peer_port else [])

    def proxies(self, which, who):
        """Of the ways to the database or to the sink: that of one place, or all."""
        ways = [place.to_database if which == "database" else place.to_sink for place in self.places]
        return ways[:1] if who is None and ways[0] is ways[-1] else ways if who is None else [ways[who]]

    def names(self, who):
        return [place.name for place in (self.places if who is None else [self.places[who]])]

    def look_after(self):
        for place in self.places:
            if place.busy.acquire(blocking=False):
                try:
                    place.restart_if_ended()
                finally:
                    place.busy.release()

    def relays(self):
        return [relay for place in self.places for relay in place.relays]

    def __enter__(self):
        for proxy in self._proxies:
            proxy.start()
        for place in self.places:
            place.start()
        return self

    def __exit__(self, *_):
        for relay in self.relays():
            relay.kill()
            relay.close()
        for proxy in self._proxies:
            proxy.close()
