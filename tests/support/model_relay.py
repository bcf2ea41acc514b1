"""A relay in miniature, which delivers a table in memory to a sink in memory and writes the journals of the history check.

    verdict = Model(seed, relay=Relay, faults=True).verdict()

Producers, relays and faults take turns in an order that the seed decides. Between any two turns of a relay others may act,
and it may be killed. A test breaks one method of Relay, and the check must find it out."""

import random
from dataclasses import dataclass

from tests.support.history import Event, Fault, Final, Parked, Receipt, check
from tests.support.journal import digest
from tests.support.verdict import lane

KEYS, RELAYS, PER_CLAIM, ATTEMPTS = 6, 3, 3, 3
TURNS_OF_FAULTS, TURNS = 3000, 6000


@dataclass
class Row:
    id: int
    key: str
    payload: bytes
    committed: bool = False

    @property
    def lane(self):
        return lane(self.key, self.id)


@dataclass
class Wait:
    """A parked lane."""

    head: Row
    attempts: int
    until: float


class Relay:
    """Each yield is a moment at which others act. `claim` holds what is in flight; `connected` is for the relay to look at."""

    def __init__(self, model, name):
        self.model, self.name, self.rng = model, name, model.rng
        self.claim, self.snapshot = [], []
        self.connected = True

    def run(self):
        while True:
            self.reconnect()
            self.snapshot = list(self.visible())
            name = self.choose()
            yield
            if name is None or not self.lock(name):
                continue
            self.claim = self.read(name)
            yield
            done, failure = [], None
            for row in self.claim:
                if self.has_lost_its_claim():
                    break
                heard = yield from self.send(row)
                done, failure, go_on = self.hear(row, heard, done, failure)
                if not go_on:
                    break
            yield
            yield from self.finish(name, done, failure)
            self.claim = []

    def reconnect(self):
        self.connected = True
        self.model.noticed(self)

    def visible(self):
        return (row for row in self.model.table.values() if row.committed)

    def choose(self):
        names = sorted({row.lane for row in self.snapshot if self.is_due(row.lane)}, key=str)
        return self.rng.choice(names) if names else None

    def is_due(self, name):
        return name not in self.model.parked or self.model.parked[name].until <= self.model.now

    def lock(self, name):
        if not self.connected or self.model.locks.setdefault(name, self.name) != self.name:
            return False
        if not self.is_due(name):
            self.unlock(name)
        return self.is_due(name)

    def unlock(self, name):
        if self.model.locks.get(name) == self.name:
            del self.model.locks[name]

    def read(self, name):
        return sorted((row for row in self.visible() if row.lane == name), key=lambda row: row.id)[:PER_CLAIM]

    def has_lost_its_claim(self):
        return not self.connected

    def attempt(self, row):
        wait = self.model.parked.get(row.lane)
        return wait.attempts + 1 if wait and wait.head.id == row.id else 1

    def send(self, row):
        """One request; what the relay hears: ack, refuse, reject, or None when no answer comes."""
        return (yield from self.model.sink(self, row.id, row.key, row.payload, self.attempt(row)))

    def hear(self, row, heard, done, failure):
        if heard == "ack":
            return [*done, row], failure, True
        return done, (row, heard), False

    def finish(self, name, done, failure):
        if self.connected:
            self.settle(name, done, failure)
        self.unlock(name)
        yield

    def settle(self, name, done, failure):
        """One transaction. Its reply may get lost, whether it was committed or not."""
        if self.model.loses_the_reply(self):
            return
        for row in done:
            self.delete(row)
            self.archive(row)
        if done:
            self.model.parked.pop(name, None)
        if failure:
            self.fail(name, *failure)

    def delete(self, row):
        self.model.table.pop(row.id, None)

    def archive(self, row):
        self.model.archived.append(row.id)

    def fail(self, name, row, heard):
        attempts = self.attempt(row)
        if heard == "reject" or attempts >= ATTEMPTS:
            self.give_up(name, row, attempts)
        else:
            self.model.parked[name] = Wait(row, attempts, self.model.now + self.rng.randint(1, 40))

    def give_up(self, name, row, attempts):
        self.model.parked.pop(name, None)
        if self.model.dead_letters:
            self.delete(row)
            self.model.dead.append(row.id)
        else:
            self.model.parked[name] = Wait(row, attempts, float("inf"))


class Model:
    def __init__(self, seed, relay=Relay, faults=False, dead_letters=True, failing_sink=True, transactions=60):
        self.seed, self.relay, self.rng = seed, relay, random.Random(seed)
        self.faulty, self.dead_letters, self.failing_sink = faults, dead_letters, failing_sink
        self.transactions = transactions
        self.now, self.next_id, self.relays_started = 0, 0, 0
        self.table, self.parked, self.locks = {}, {}, {}
        self.archived, self.dead = [], []
        self.events, self.receipts, self.faults = [], [], []  # the journals; a fault is a dict until the end
        self.relays = {}

    def verdict(self):
        producers = [self.produce([f"k{number}" for number in range(KEYS) if number % 2 == parity] + [None]) for parity in (0, 1)]
        for _ in range(RELAYS):
            self.start_relay()
        while self.now < TURNS and (producers or any(row.lane not in self.closed() for row in self.table.values())):
            self.now += 1
            if self.faulty and self.now < TURNS_OF_FAULTS and self.rng.random() < 0.01:
                self.harm(self.rng.choice(list(self.relays.values()))[0])
            turn = self.rng.randrange(len(producers) + len(self.relays))
            if turn < len(producers):
                if next(producers[turn], "over") == "over":
                    del producers[turn]
            else:
                next(list(self.relays.values())[turn - len(producers)][1])
        parked = [Parked(wait.head.id, wait.head.key, wait.until == float("inf")) for wait in self.parked.values()]
        final = Final(list(self.table), self.dead, self.archived, parked)
        return check(self.events, self.receipts, self.faults, final, attempts=ATTEMPTS, seed=self.seed)

    def closed(self):
        return {name for name, wait in self.parked.items() if wait.until == float("inf")}

    def start_relay(self):
        self.relays_started += 1
        relay = self.relay(self, f"relay-{self.relays_started}")
        self.relays[relay.name] = (relay, relay.run())

    # --- producers ---

    def produce(self, keys):
        """A producer with keys of its own, so that each key's events commit in the order of their ids."""
        for _ in range(self.transactions // 2):
            rows = [self.insert(self.rng.choice(keys)) for _ in range(self.rng.randint(1, 3))]
            for _ in range(self.rng.randint(1, 10)):
                yield
            outcome = "no" if self.rng.random() < 0.1 else "yes"
            told = "unknown" if self.rng.random() < 0.05 else outcome
            for row in rows:
                self.events.append(Event(row.id, row.key, told, digest(row.payload)))
                row.committed = outcome == "yes"
                if outcome == "no":
                    self.table.pop(row.id, None)
            yield

    def insert(self, key):
        self.next_id += 1
        payload = b"%d\0%s\0" % (self.next_id, bytes(self.rng.randrange(256) for _ in range(self.rng.randint(0, 100))))
        row = self.table[self.next_id] = Row(self.next_id, key, payload)
        return row

    # --- the sink ---

    def sink(self, relay, event_id, key, payload, attempt):
        number, answer = len(self.receipts), self.answer(event_id)
        at = self.now = self.now + 1
        self.receipts.append(Receipt(event_id, key, answer, relay.name, attempt, digest(payload), at, at))
        for _ in range(self.rng.randint(1, 3)):
            yield
            if relay.name in self.relays:
                self.receipts[number] = self.receipts[number]._replace(end=self.now)
        return answer if answer in ("ack", "refuse", "reject") else None

    def answer(self, event_id):
        if not self.failing_sink:
            return "ack"
        if event_id % 37 == 0:
            return "reject"
        if event_id % 41 == 0:
            return "refuse"
        return self.rng.choices(["ack", "refuse", "silent", "away"], [88, 6, 3, 3])[0]

    # --- faults ---

    def record(self, what, relay, until=None):
        self.now += 1
        self.faults.append(Fault(what, in_flight=len(relay.claim), relay=relay.name, at=self.now, until=until)._asdict())

    def harm(self, relay):
        if self.rng.random() < 0.5:
            self.record("SIGKILL", relay, until=self.now + 1)
            del self.relays[relay.name]
            self.start_relay()
        elif relay.connected:
            self.record("connection lost", relay)
            relay.connected = False
        self.locks = {name: owner for name, owner in self.locks.items() if owner in self.relays and self.relays[owner][0].connected}

    def noticed(self, relay):
        for fault in self.faults:
            if fault["relay"] == relay.name and fault["until"] is None:
                fault["until"] = self.now

    def loses_the_reply(self, relay):
        """The connection breaks in the COMMIT: True when that was before it."""
        if not self.faulty or self.now >= TURNS_OF_FAULTS or self.rng.random() > 0.05:
            return False
        self.record("reply of COMMIT lost", relay)
        return self.rng.random() < 0.5
