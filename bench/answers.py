"""What the views of docs/monitoring.md ("Answers in SQL") cost over large tables: python3 -m bench.answers [ROWS [ENTRIES]].

Fills a private PostgreSQL (fsync off) with ROWS events that wait and as many archived (2,000,000), and for each kind of entry
with ENTRIES of it in outbox.parked (1,000,000). Prints for each view the CPU time and the median time of a call in milliseconds,
and the buffers that it reads, beside those of count(*) over the events and the archive."""

import os
import statistics
import sys
import time

from bench import cpu
from tests.conftest import migrate
from tests.support.postgres import Postgres

VIEWS = ["overview", "failures", "stuck", "by_hour", "workers"]
KINDS = ["delayed", "parked", "closed", "running"]
CALLS = 20
COUNTS = {"count(*) of events": "select count(*) from outbox.events", "count(*) of archive": "select count(*) from outbox.archive"}


def run_file(db, name, **values):
    with open(os.path.join(os.path.dirname(__file__), "sql", name), encoding="utf-8") as file:
        text = file.read()
    for variable, value in values.items():
        text = text.replace(f":'{variable}'", f"'{value}'").replace(f":{variable}", str(value))
    db.psql(text)


def fill(db, rows):
    run_file(db, "answers_fill.sql", rows=rows)


def park(db, entries, kind):
    run_file(db, "answers_park.sql", entries=entries, kind=kind)


def of_view(view):
    """For read_buffers(): as a member of outbox_monitor."""
    return f"select * from outbox.{view}"


def read_buffers(db, query, role="outbox_monitor"):
    """How many it reads when it has been run before, those of its planning among them."""
    connection = db.connect()
    with connection.cursor() as cursor:
        cursor.execute(f"set role {role}")
        for _ in range(2):
            cursor.execute(f"explain (analyze, buffers, timing off, format json) {query}")
            (plan,) = cursor.fetchone()[0]
    connection.close()
    return sum(part[f"Shared {how} Blocks"] for part in (plan["Plan"], plan["Planning"]) for how in ("Hit", "Read"))


def measure(db, query, calls=CALLS):
    """Milliseconds of CPU of a call, and its median duration."""
    times = []
    connection = db.connect()
    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        pid = cursor.fetchone()[0]
        cursor.execute(query)
        before = cpu.of_process(pid)
        for _ in range(calls):
            began = time.monotonic()
            cursor.execute(query)
            cursor.fetchall()
            times.append((time.monotonic() - began) * 1000)
        used = cpu.of_process(pid) - before
    connection.close()
    return used * 1000 / calls, statistics.median(times)


def line(db, name, query, role="outbox_monitor", calls=CALLS):
    used, took = measure(db, query, calls)
    print(f"{name:24} {used:8.1f} {took:10.1f} {read_buffers(db, query, role):10}", flush=True)


def main(rows=2_000_000, entries=1_000_000):
    with Postgres({"max_parallel_workers_per_gather": 0, "max_wal_size": "4GB"}) as server:
        db = server.create_database(name="answers")
        migrate(db)
        fill(db, rows)
        print(f"{rows} events, {rows} archived, {rows // 10} dead letters\n{'':24} {'CPU ms':>8} {'median ms':>10} {'buffers':>10}")
        for name, query in COUNTS.items():
            line(db, name, query, "postgres", 3)
        for kind in KINDS:
            park(db, entries, kind)
            print(f"\n{entries} entries, {kind}")
            for view in VIEWS:
                line(db, view, of_view(view))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
