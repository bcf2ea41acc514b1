"""The guarantees, shown: eight producers commit 200,000 status events of 20,000 orders into the article's table, two
relays deliver them to one file while they come, and then every event is accounted for. Anything that is not as it
should be ends in a non-zero exit."""

import argparse
import os
import re
import sys
import time

from bench.demo.proof import STATUSES, prove_file
from tests.support.postgres import RELAY_ROLE, Postgres, bin_folders
from tests.support.process import Process, ServerError, exit_on_signals, find_program
from tests.support.relay import Relay, run_command

HERE = os.path.dirname(os.path.abspath(__file__))
RELAYS = 2
PRODUCERS = 8
VISITS = 5  # transactions of each order; producer.sql
PROGRESS_S = 2.0
STALL_S = 30.0  # nothing produced and nothing delivered for so long: it hangs


class DemoFailed(Exception):
    pass


def say(text=""):
    print(text, flush=True)


def read(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return file.read()


class Counter:
    """Lines of a growing file, counted by reading only what is new."""

    def __init__(self, path):
        self.path = path
        self.offset = self.lines = 0

    def count(self):
        if os.path.exists(self.path):
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                while block := file.read(1 << 20):
                    self.offset += len(block)
                    self.lines += block.count(b"\n")
        return self.lines


class Demo:
    def __init__(self, postgres, orders):
        self.postgres = postgres
        self.orders = orders
        self.events = orders * len(STATUSES)
        self.path = os.path.join(postgres.folder, "events.jsonl")
        self.output = Counter(self.path)
        self.db = self.sequence = self.producers = None
        self.relays = []
        self.seconds = 0.0

    # --- the three parts ---

    def prepare(self):
        self.db = self.postgres.create_database(name="shop")
        self.db.psql(read("schema.sql"))
        self.db.query("insert into orders (id) select generate_series(1, %s)", (self.orders,))
        self.db.query("vacuum analyze")
        done = run_command("migrate", "-d", self.db.owner_dsn)
        if done.returncode != 0:
            raise DemoFailed(f"pgcourier migrate: {done.stderr}")
        self.db.create_logins()
        self.db.let_relay_in("public.events")

    def start_relays(self):
        env = {"PGHOST": "127.0.0.1", "PGPORT": str(self.postgres.port), "PGUSER": RELAY_ROLE,
               "DEMO_FOLDER": self.postgres.folder}
        for _ in range(RELAYS):
            self.relays.append(Relay(read("pgcourier.yaml"), env=env).start())

    def start_producers(self):
        statuses = "{" + ",".join(STATUSES) + "}"
        command = [find_program("pgbench", *bin_folders()), "--no-vacuum", "--protocol=prepared", f"--client={PRODUCERS}",
                   f"--transactions={self.orders * VISITS // PRODUCERS}", f"--file={HERE}/producer.sql", "-Dmade=0",
                   f"-Dclients={PRODUCERS}", f"-Dorders={self.orders}", f"-Dstatuses={statuses}", self.db.superuser_dsn]
        self.producers = Process(command, os.path.join(self.postgres.folder, "producers.log"))

    # --- while it runs ---

    def produced(self, cursor):
        cursor.execute("select last_value, is_called from events_id_seq")
        last, called = cursor.fetchone()
        return last if called else 0

    def check_alive(self):
        for relay in self.relays:
            if not relay.running:
                raise DemoFailed(f"a relay ended with {relay.exit_code}\n{relay.process.log_tail()}")
        if self.producers.returncode not in (None, 0):
            raise DemoFailed(f"the producers ended with {self.producers.returncode}\n{self.producers.log_tail()}")

    def watch(self):
        """Returns when all producers are done and the file has as many lines as there are events."""
        begun = changed = said = time.monotonic()
        before = None
        with self.db.connect() as connection, connection.cursor() as cursor:
            while True:
                self.check_alive()
                counts = (self.produced(cursor), self.output.count())
                now = time.monotonic()
                changed = now if counts != before else changed
                before = counts
                done = not self.producers.running and counts[1] >= self.events
                if done or now - said >= PROGRESS_S:
                    said += PROGRESS_S
                    self.say_progress(now - begun, *counts)
                if done:
                    self.seconds = now - begun
                    return
                if now - changed > STALL_S:
                    raise DemoFailed(f"nothing moved for {STALL_S:g} s\n{self.relays[0].process.log_tail()}")
                time.sleep(0.05)

    def say_progress(self, seconds, produced, delivered):
        memory = " and ".join(f"{relay.rss_peak() / 1e6:.1f}" for relay in self.relays)
        say(f"  {seconds:5.0f} s   produced {produced:>9,}   delivered {delivered:>9,}   relays at most {memory} MB")

    def stop_relays(self):
        for relay in self.relays:
            code = relay.stop()
            if code != 0:
                raise DemoFailed(f"a relay ended with {code} when told to stop\n{relay.process.log_tail()}")

    # --- afterwards ---

    def prove(self):
        proof = prove_file(self.path, self.orders)
        problems = proof.problems()
        left = self.db.value("select count(*) from events")
        if left:
            problems.append(f"{left:,} rows are left in the table")
        archived = [row[0] for row in self.db.query("select event_id from outbox.archive")]
        if len(archived) != self.events or set(archived) != proof.ids:
            problems.append(f"the archive has {len(archived):,} rows, not the {self.events:,} events of the file")
        for table in ("dead", "parked"):
            if self.db.value(f"select count(*) from outbox.{table}"):
                problems.append(f"outbox.{table} is not empty")
        if problems:
            raise DemoFailed("\n".join(problems))
        return [f"{self.events:,} events arrived, every one exactly once",
                f"{self.orders:,} orders, the events of each in id order and its statuses in theirs",
                "the table is empty", f"{len(archived):,} rows are in the archive, the same events",
                "no dead letter, no waiting key, both relays ended with 0"]

    def numbers(self):
        yield f"{self.events / self.seconds:,.0f} events/s delivered, from the first insert to the last delivery"
        for number, relay in enumerate(self.relays, 1):
            stats = relay.logged(r"queue\.stats")[-1]
            fact = dict(re.findall(r"(\w+)=(\S+)", stats))
            yield (f"relay {number}: {int(fact['delivered']):,} events; insert to delivery p50 "
                   f"{float(fact['lag_p50_ms']):.1f} ms, p99 {float(fact['lag_p99_ms']):.1f} ms; "
                   f"peak memory {relay.peak_bytes / 1e6:.1f} MB")

    def close(self):
        if self.producers:
            self.producers.end()
        for relay in self.relays:
            relay.close()


def show(orders):
    say("== a private PostgreSQL with its default durability")
    with Postgres(durable=True) as postgres:
        demo = Demo(postgres, orders)
        try:
            demo.prepare()
            say(f"== {RELAYS} relays, each with this configuration:\n")
            say("    " + read("pgcourier.yaml").rstrip().replace("\n", "\n    ") + "\n")
            demo.start_relays()
            say(f"== {PRODUCERS} producers commit {demo.events:,} status events of {orders:,} orders, locking the order first")
            demo.start_producers()
            demo.watch()
            demo.stop_relays()
            say("== the proof")
            for fact in demo.prove():
                say(f"  ok   {fact}")
            say("== the numbers (created_at is now(), the start of the producer's transaction, so latency includes its rest)")
            for line in demo.numbers():
                say(f"  {line}")
        finally:
            demo.close()


def main():
    parser = argparse.ArgumentParser(prog="./dev demo", description=__doc__)
    parser.add_argument("--orders", type=int, default=20_000, help="a multiple of 8; each has 10 events (default 20000)")
    arguments = parser.parse_args()
    if arguments.orders < PRODUCERS or arguments.orders % PRODUCERS:
        parser.error(f"--orders must be a multiple of {PRODUCERS}")
    exit_on_signals()
    begun = time.monotonic()
    try:
        show(arguments.orders)
    except (DemoFailed, ServerError) as error:
        print(f"demo FAILED: {error}", file=sys.stderr)
        return 1
    say(f"== demo passed in {time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
