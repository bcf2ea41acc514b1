"""Workers that pull and relays on one table, judged by the history check: nothing is lost, first deliveries are in order, and
what comes twice was in a lease that ran out."""

import fcntl
import json
import os
import random
import threading
from base64 import b64encode
from datetime import timedelta

import pytest

from tests.support.history import Fault
from tests.support.postgres import OWNER_ROLE
from tests.support.process import wait_until
from tests.support.shop import Shop
from tests.support.targets import FileTarget
from tests.support.workers import Worker

EVENTS = int(os.environ.get("PGCOURIER_EVENTS", "3000"))
WORKERS, RELAYS, VANISH = 4, 2, 12


class Staff:
    """Workers that deliver to the file that the relays deliver to. Now and then one vanishes with what it has, in the middle
    of delivering it, or is slow and comes back when its leases are over."""

    def __init__(self, db, path, rng):
        self.db, self.rng = db, rng
        self.fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self.faults, self.errors = [], []
        self.left_to_vanish = VANISH
        self.fates = 0  # that were drawn
        self._over = threading.Event()
        self._lock = threading.Lock()
        self.threads = [threading.Thread(target=self._run, args=(n,), name=f"worker-{n}") for n in range(WORKERS)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        for thread in self.threads:
            thread.join()
        os.close(self.fd)

    def _run(self, number):
        try:
            while not self._over.is_set():
                worker = Worker(self.db, "shop", f"worker-{number}")
                self._work(worker)
                worker.close()
        except Exception as error:  # for the test to raise
            self.errors.append(error)

    def _work(self, worker):
        """Until it vanishes."""
        while not self._over.is_set():
            events = worker.take(20, "1 s")
            if not events and self._over.wait(0.02):
                return
            for number, event in enumerate(events):
                fate = self._fate()
                if fate == "vanish":
                    self._lose(events[number:])
                    if self.rng.random() < 0.5:
                        self._deliver(event)
                    return
                self._end(worker, event, fate)

    def _fate(self):
        with self._lock:
            draw = self.rng.random()
            self.fates += 1
            if self.left_to_vanish > 0 and (draw < 0.01 or self.fates == 5):  # one does, however little relays leave to them
                self.left_to_vanish -= 1
                return "vanish"
        return "fail" if draw < 0.05 else "late" if draw < 0.055 else "release" if draw < 0.07 else "done"

    def _end(self, worker, event, fate):
        if fate == "release":
            worker.release(event.token)
            return
        if fate == "late":
            self._lose([event])
            self._over.wait(1.2)
        self._deliver(event, "refuse" if fate == "fail" else "ack")
        counted = worker.fail(event.token, "by chance") if fate == "fail" else worker.done(event.token)
        if not counted:
            self._lose([event])

    def _lose(self, events):
        """Their leases run out, so somebody may have them as well."""
        self.faults.append(Fault("a lease ran out", in_flight=len(events), ids=[event.id for event in events]))

    def _deliver(self, event, answer="ack"):
        payload = b64encode(bytes.fromhex(event.payload[2:])).decode()
        line = {"id": event.id, "key": event.key, "attempt": event.attempt, "payload_base64": payload, "answer": answer}
        self._append(json.dumps(line).encode() + b"\n")

    def _append(self, line):
        """Under the lock that relays write under: one that opens the file meanwhile would take a line for a torn one."""
        with self._lock:
            fcntl.flock(self.fd, fcntl.LOCK_EX)
            try:
                os.write(self.fd, line)
            finally:
                fcntl.flock(self.fd, fcntl.LOCK_UN)


class SharedFile(FileTarget):
    """Lines of relays and of workers; only the latter can tell of a refusal."""

    def receipts(self):
        with open(self.path) as file:
            answers = [json.loads(line).get("answer", "ack") for line in file]
        return [receipt._replace(answer=answer) for receipt, answer in zip(super().receipts(), answers)]


@pytest.mark.parametrize("relays, ordering, more", [pytest.param(0, None, "", marks=pytest.mark.deep), (0, None, ", priority_column => 'urgency'"), (RELAYS, "per_key", ""),
                                                     (RELAYS, "lease", "")],
                         ids=["workers alone", "workers alone, by priority", "beside relays", "beside relays with leases"])
def test_workers_that_die_and_come_late_lose_nothing_and_keep_the_order(db, relay, tmp_path, relays, ordering, more):
    rng = random.Random(os.environ.get("PGCOURIER_SEED", "1"))
    shop = Shop(db, orders=120)
    if more:
        db.psql("alter table public.events add urgency int default trunc(random() * 5); create index on public.events (urgency desc, id)")
    target = SharedFile(tmp_path / "events.jsonl")
    db.query(f"grant select, delete on public.events to {OWNER_ROLE}; set role {OWNER_ROLE};"
             " select outbox.queue_set('shop', 'public.events', key_column => 'order_id', type_column => 'status', payload_column => 'payload',"
             " created_at_column => 'created_at', retry_base => '1 ms', retry_max => '20 ms', max_attempts => 10000, after => 'archive'" + more + ")")
    settings = {"after": "archive", "ordering": ordering, "keys_per_claim": 8, "retry": "{ base: 1ms, max: 20ms, attempts: 10000 }", **target.queue}
    running = [relay(shop.config(target.sink(), **settings)) for _ in range(relays)]
    with Staff(db, target.path, rng) as staff:
        shop.produce(EVENTS, producers=4)
        wait_until(lambda: shop.left() == 0 or staff.errors, 120, "the table to be empty")
    assert staff.errors == []
    assert [one.stop() for one in running] == [0] * relays
    verdict = shop.check(target.receipts(), staff.faults, archived=True, attempts=10000)
    print(f"{len(verdict.receipts)} deliveries, {verdict.duplicates} again, of {sum(fault.in_flight for fault in staff.faults)} leases lost")
    assert staff.left_to_vanish < VANISH and db.query("select * from outbox.status_leases") == []


DELAYS = """
alter table public.events add not_before timestamptz default case when random() < 0.2 then clock_timestamp() + random() * interval '1 s' end;
create table public.noted (id bigint, key text, not_before timestamptz);
create function public.note() returns trigger language plpgsql as
    $$ begin insert into public.noted values (new.id, new.order_id, new.not_before); return null; end $$;
create trigger note after insert on public.events for each row execute function public.note();
"""


class Clerks(Staff):
    """Workers who write down when they were given what, by the database's clock."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.given_at = {}  # id -> the first time

    def _deliver(self, event, answer="ack"):
        given_at = event.expires_at - timedelta(seconds=1)  # as long as a lease is
        self.given_at[event.id] = min(given_at, self.given_at.get(event.id, given_at))
        super()._deliver(event, answer)


@pytest.mark.parametrize("index", [pytest.param("", marks=pytest.mark.deep), "create index on public.events (not_before) where not_before is not null"],
                         ids=["without an index", "with an index"])
def test_in_busy_keys_what_has_become_due_comes_before_what_is_later(db, tmp_path, index):
    rng = random.Random(os.environ.get("PGCOURIER_SEED", "1"))
    shop = Shop(db, orders=6)
    db.psql(DELAYS + index)
    target = SharedFile(tmp_path / "events.jsonl")
    db.query(f"grant select, delete on public.events to {OWNER_ROLE}; set role {OWNER_ROLE};"
             " select outbox.queue_set('shop', 'public.events', key_column => 'order_id', type_column => 'status', payload_column => 'payload',"
             " created_at_column => 'created_at', not_before_column => 'not_before', delayed => 'pass', retry_base => '1 ms', retry_max => '20 ms',"
             " max_attempts => 10000, after => 'archive')")
    with Clerks(db, target.path, rng) as staff:
        shop.produce(EVENTS // 2, producers=4)
        wait_until(lambda: shop.left() == 0 or staff.errors, 120, "the table to be empty")
    assert staff.errors == []
    noted = db.query("select id, key, not_before from public.noted")
    free = {event for event, _, not_before in noted if not_before}  # in no order with the rest of their keys, for the check

    def moved(record):
        return record._replace(key=None if record.id in free else record.key)

    shop.journal = [moved(event) for event in shop.journal]
    shop.check([moved(receipt) for receipt in target.receipts()], staff.faults, archived=True, attempts=10000)
    slack = timedelta(milliseconds=100)
    keys = {}
    for event, key, not_before in noted:
        if key is not None and event in staff.given_at:
            keys.setdefault(key, []).append((event, staff.given_at[event], not_before))
    early = [event for event, at, not_before in sum(keys.values(), []) if not_before and at < not_before]
    passed = [(event, by) for events in keys.values() for event, at, not_before in events if not_before
              for by, by_at, _ in events if by > event and not_before + slack < by_at < at]
    assert early == [] and passed == []
    assert len(free) > EVENTS // 20


# Each event comes after up to two others of any key, which were committed before and were not done then.
NAMES = """
alter table public.events add after_ids bigint[];
create function public.name_others() returns trigger language plpgsql as $$
begin
    new.after_ids := (select array_agg(id) from (
        select e.id from public.events e where e.id between new.id - 200 and new.id - 1 order by random() limit trunc(random() * 3)) as others);
    insert into public.named select new.id, n from unnest(new.after_ids) n;
    return new;
end $$;
create table public.named (id bigint, other bigint);
create trigger name_others before insert on public.events for each row execute function public.name_others();
"""


@pytest.mark.parametrize("relays, ordering", [pytest.param(0, "per_key", marks=pytest.mark.deep), (RELAYS, "per_key"),
                                               pytest.param(RELAYS, "lease", marks=pytest.mark.deep), pytest.param(0, "unordered", marks=pytest.mark.deep),
                                               (RELAYS, "unordered")])
def test_nothing_goes_before_what_it_names_whoever_delivers_it(db, relay, tmp_path, relays, ordering):
    rng = random.Random(os.environ.get("PGCOURIER_SEED", "1"))
    shop = Shop(db, orders=120)
    db.psql(NAMES)
    target = SharedFile(tmp_path / "events.jsonl")
    ordered = ordering != "unordered"
    db.query(f"grant select, delete on public.events to {OWNER_ROLE}; set role {OWNER_ROLE};"
             " select outbox.queue_set('shop', 'public.events', type_column => 'status', payload_column => 'payload', after_column => 'after_ids',"
             " created_at_column => 'created_at', retry_base => '1 ms', retry_max => '20 ms', max_attempts => 10000, after => 'archive'"
             + (", key_column => 'order_id')" if ordered else ")"))
    settings = {"after": "archive", "ordering": ordering, "keys_per_claim": 8, "retry": "{ base: 1ms, max: 20ms, attempts: 10000 }", **target.queue,
                **({} if ordered else {"locks": "advisory"})}
    text = shop.config(target.sink(), **settings).replace("created_at: created_at }", "created_at: created_at, after: after_ids }")
    running = [relay(text) for _ in range(relays)]
    with Staff(db, target.path, rng) as staff:
        shop.produce(EVENTS // 2, producers=4)
        if running:
            running.pop().kill()
            staff.faults.append(Fault("a relay was killed", in_flight=100))
        wait_until(lambda: shop.left() == 0 or staff.errors, 120, "the table to be empty")
    assert staff.errors == []
    assert [one.stop() for one in running] == [0] * len(running)
    keys = {event.id: event.key for event in shop.journal}
    receipts = [receipt._replace(key=keys[receipt.id]) for receipt in target.receipts()]  # a worker is told no key where there is no order
    shop.check(receipts, staff.faults, archived=True, attempts=10000, ordered=ordered)
    others, acked = {}, set()
    for event, other in db.query("select * from public.named"):
        others.setdefault(event, []).append(other)
    for receipt in receipts:
        assert acked.issuperset(others.get(receipt.id, ())), f"event {receipt.id} was delivered before one of {others[receipt.id]} was"
        if receipt.answer == "ack":
            acked.add(receipt.id)
    assert len(others) > EVENTS // 8


@pytest.mark.alone
def test_500_tasks_of_a_dead_worker_are_taken_over_within_a_second_of_their_expiry(db):
    db.query("select outbox.queue_set('tasks')")
    db.query("insert into outbox.events (aggregateid) select 'key-' || n from generate_series(1, 500) n")
    victim, heir = Worker(db, "tasks", "victim"), Worker(db, "tasks", "heir")
    lost = victim.take(500, "2 s")
    victim.close()
    assert len(lost) == 500
    again = []
    wait_until(lambda: again.extend(heir.take(100)) or len(again) == 500, 30, "the tasks to be taken over", interval_s=0.05)
    late_s = db.value("select extract(epoch from max(taken_at) - %s) from outbox.status_leases", (max(event.expires_at for event in lost),))
    heir.close()
    print(f"taken over {float(late_s):.3f} s after the expiry")
    assert {event.id for event in again} == {event.id for event in lost} and 0 <= late_s < 1
