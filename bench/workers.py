"""What workers that pull (docs/workers.md) cost: python3 -m bench.workers [ROWS [SECONDS]].

On private PostgreSQL servers: how fast one worker takes and ends tasks (fsync off), what 2,000 tasks a second that are produced, taken
and done leave of pgbench's own workload (PostgreSQL's default durability; SECONDS, 20, for each of three rounds), and what take() costs
beside ROWS (1,000,000) dead rows and behind a tenth as many tasks that come after another one."""

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from bench.harness import read_sql
from tests.conftest import migrate
from tests.support.postgres import OWNER_ROLE, Postgres, bin_folders
from tests.support.process import find_program, wait_until
from tests.support.workers import Worker

SIZES = [200, 50, 10]
CLIENTS, TASKS, A_TRANSACTION, ROUNDS, CALLS = 4, 2000, 10, 3, 40


def fill(db, count):
    db.query("insert into outbox.events (type, payload) select 'task', '{\"n\": 1}' from generate_series(1, %s)", (count,))
    db.query("vacuum analyze outbox.events")


def tasks(server):
    """A database whose queue `tasks` is over outbox.events, without a key."""
    db = server.create_database()
    migrate(db)
    db.query("alter table outbox.events set (autovacuum_enabled = off);"
             f" set role {OWNER_ROLE}; select outbox.queue_set('tasks', 'outbox.events', payload_column => 'payload')")
    return db


def drain(db, size, until=lambda taken: not taken):
    """One worker's tasks, until there are none."""
    worker, done, begun = Worker(db, "tasks"), 0, time.monotonic()
    while not until(taken := worker.take(size)):
        done += worker.done_all([event.token for event in taken])
    worker.close()
    return done, time.monotonic() - begun


def alone(rows):
    with Postgres() as server:
        db = tasks(server)
        for size in SIZES:
            fill(db, rows // 20)
            done, seconds = drain(db, size)
            print(f"one worker, take and done_all by {size}: {done / seconds:,.0f} tasks/s")


def pgbench(db, seconds, *arguments):
    command = [find_program("pgbench", *bin_folders()), "-n", "-M", "prepared", "-j", "1", "-T", str(seconds), *arguments, db.superuser_dsn]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def rate_of(process):
    said = process.communicate()[0]
    if process.returncode != 0:
        raise SystemExit(f"pgbench: {said}")
    return next(float(line.split()[2]) for line in said.splitlines() if line.startswith("tps = "))


def other_work(db, seconds):
    db.query("checkpoint")
    return rate_of(pgbench(db, seconds, "-c", str(CLIENTS)))


def beside_a_worker(db, size, seconds, folder):
    db.query("truncate outbox.events")
    script = os.path.join(folder, "insert.sql")
    with open(script, "w", encoding="ascii") as file:
        file.write(read_sql("tasks_insert.sql").replace("public.tasks", "outbox.events").replace("PAYLOAD", '{"n": 1}'))
    producers = pgbench(db, seconds + 1, "-c", "2", "-R", str(TASKS // A_TRANSACTION), "-f", script)
    over, done = threading.Event(), []

    def until(taken):
        if not taken or len(taken) < size:
            over.wait(0.02)
        return over.is_set() and not taken

    worker = threading.Thread(target=lambda: done.append(drain(db, size, until)[0]))
    worker.start()
    rate, made = other_work(db, seconds), rate_of(producers) * A_TRANSACTION
    over.set()
    worker.join()
    if made < 0.9 * TASKS:
        print(f"(of {TASKS:,} tasks/s only {made:,.0f} came: the machine has other things to do)")
    return rate


def beside(seconds):
    with Postgres(durable=True) as server, tempfile.TemporaryDirectory() as folder:
        db = tasks(server)
        subprocess.run([find_program("pgbench", *bin_folders()), "-i", "-q", "-s", "10", db.superuser_dsn], check=True, capture_output=True)
        rates = {None: [], 200: [], 50: []}
        for _ in range(ROUNDS):
            rates[None].append(other_work(db, seconds))
            for size in (200, 50):
                rates[size].append(beside_a_worker(db, size, seconds, folder))
        floor = statistics.median(rates.pop(None))
        print(f"pgbench alone: {floor:,.0f} transactions/s")
        for size, found in rates.items():
            rate = statistics.median(found)
            print(f"beside {TASKS:,} tasks/s, by {size}: {rate:,.0f} transactions/s, {100 - 100 * rate / floor:.0f} % slower")


def timed_takes(db, size=50, calls=CALLS):
    """Milliseconds of the call, the worst and the median; what is taken is released."""
    worker, times = Worker(db, "tasks"), []
    for _ in range(calls):
        begun = time.monotonic()
        taken = worker.take(size)
        times.append((time.monotonic() - begun) * 1000)
        for event in taken:
            worker.release(event.token)
    worker.close()
    return f"median {statistics.median(times):.1f} ms, worst {max(times):.0f} ms"


def dead_rows(rows):
    """At the old end, below 1,000 tasks that wait."""
    with Postgres() as server:
        db = tasks(server)
        fill(db, 1000)
        print(f"take of 50, no dead rows: {timed_takes(db)}")
        db.query("truncate outbox.events")
        fill(db, rows + 1000)
        report = db.connect(autocommit=False)  # with a snapshot from before
        report.set_session(isolation_level="repeatable read")
        report.cursor().execute("select count(*) from outbox.events")
        db.query("delete from outbox.events where id <= (select max(id) from outbox.events) - 1000")
        print(f"in the first moments after {rows:,} rows were deleted by somebody else: {timed_takes(db, calls=5)}")
        settle(db)
        print(f"with {rows:,} dead rows that an old snapshot keeps vacuum from: {timed_takes(db)}")
        report.close()
        print(f"with {rows:,} dead rows: {timed_takes(db)}")


def settle(db, seconds=5):
    """Until the mark has moved, which it does while somebody takes."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        timed_takes(db, calls=1)
        time.sleep(0.2)


def predecessors(rows):
    """Tasks that come after the first one, in front of one that comes after none."""
    with Postgres() as server:
        db = tasks(server)
        db.query("create table public.jobs (id bigserial primary key, after_id bigint) with (autovacuum_enabled = off);"
                 f"grant select, delete on public.jobs to {OWNER_ROLE}; set role {OWNER_ROLE};"
                 " select outbox.queue_set('jobs', 'public.jobs', after_column => 'after_id')")
        worker = Worker(db, "jobs")
        db.query("insert into public.jobs default values")
        (first,) = worker.take(1, "1 hour")
        db.query("insert into public.jobs (after_id) select %s from generate_series(1, %s)", (first.id, rows))
        db.query("insert into public.jobs default values; analyze public.jobs")
        begun = time.monotonic()
        wait_until(lambda: worker.take(10), 300, "what comes after none")
        seconds = time.monotonic() - begun
        print(f"{rows:,} tasks that come after one that is not done, met for the first time by take(10): {seconds:.1f} s")
        db.query("insert into public.jobs select from generate_series(1, 400)")
        times = {"take": [], "done_all": []}
        for _ in range(CALLS):
            begun = time.monotonic()
            tokens = [event.token for event in worker.take(10)]
            between = time.monotonic()
            worker.done_all(tokens)
            times["take"].append((between - begun) * 1000)
            times["done_all"].append((time.monotonic() - between) * 1000)
        print("from then on, by 10: " + ", ".join(f"{name} {statistics.median(found):.1f} ms" for name, found in times.items()))
        worker.close()


def main(rows="1000000", seconds="20"):
    alone(int(rows))
    beside(int(seconds))
    dead_rows(int(rows))
    predecessors(int(rows) // 10)


if __name__ == "__main__":
    main(*sys.argv[1:])
