"""What does an outbox cost who inserts: the table, a relay beside it, publish(), the trigger?"""

import functools
import os
import re
import subprocess
from dataclasses import dataclass

from bench.answer import Answer, BenchFailed
from bench.harness import last_stats, read_sql
from bench.turns import between_floors
from tests.support.postgres import bin_folders
from tests.support.process import find_program, wait_until

CLIENTS = 8
SECONDS = 1  # of a run: pgbench's least
LEAST_DELIVERED = 0.8  # of what is inserted, before the relay is stopped: or it has not worked as it would
PAYLOAD = '{"note": "' + "x" * 288 + '"}'
COLUMNS = "columns: { id: id, key: aggregateid, type: type, payload: payload }"


@dataclass
class Case:
    """One way to insert; what the relay serves meanwhile, or None for no relay."""

    name: str
    script: str
    table: str
    serves: str = None
    must: float = None
    aim: float = None


PLAIN = Case("a plain table", "producer_insert.sql", "public.plain")
CASES = (
    Case("insert, relay delivering", "producer_insert.sql", "outbox.events", "outbox.events", must=0.90, aim=0.97),
    Case("insert, relay idle", "producer_insert.sql", "outbox.events", "public.quiet", must=0.90, aim=0.97),
    Case("publish(), relay idle", "producer_publish.sql", "outbox.events", "public.quiet", must=0.75, aim=0.90),
    Case("trigger, relay idle", "producer_insert.sql", "public.triggered", "public.quiet", must=0.75, aim=0.90),
)


def insert(bench, case):
    """(transactions, transactions a second) of pgbench."""
    path = os.path.join(bench.folder, case.script)
    with open(path, "w", encoding="ascii") as file:
        file.write(read_sql(case.script).replace("TABLE", case.table).replace("PAYLOAD", PAYLOAD))
    command = [find_program("pgbench", *bin_folders()), "-n", "-M", "prepared", "-c", str(CLIENTS), "-j", "2", "-T", str(SECONDS),
               "-f", path, bench.db.superuser_dsn]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS + 60)
    count = re.search(r"actually processed: (\d+)", done.stdout)
    rate = re.search(r"^tps = ([\d.]+)", done.stdout, re.MULTILINE)
    if done.returncode != 0 or not count or not rate:
        raise BenchFailed(f"pgbench: {done.stdout}{done.stderr}")
    return int(count.group(1)), float(rate.group(1))


def expect_all(bench, case, inserted, relay):
    delivered = 0
    if relay:
        if relay.stop() != 0:
            raise BenchFailed(f"the relay ended with {relay.exit_code}\n{relay.process.log_tail()}")
        delivered = int(last_stats(relay)["delivered"])
    left = bench.db.value(f"select count(*) from {case.table}")
    if inserted != delivered + left or (delivered < inserted * LEAST_DELIVERED if case.serves == case.table else delivered > 0):
        raise BenchFailed(f"{case.name}: {inserted:,} were inserted, {delivered:,} delivered, {left:,} are left")


def measure(bench, case):
    """Inserts a second."""
    bench.db.query(f"truncate {case.table} restart identity")
    bench.db.query("checkpoint")
    queue = f"table: {case.serves}, {COLUMNS}" if case.serves else ""
    relay = bench.relay("{ type: discard }", queue) if case.serves else None
    try:
        if relay:
            relay.start()
            wait_until(lambda: relay.logged("relay.start"), what="the relay to start")
        inserted, rate = insert(bench, case)
        expect_all(bench, case, inserted, relay)
        return rate
    finally:
        if relay:
            relay.close()


def ask(bench):
    bench.db.psql(read_sql("producer_tables.sql"))
    bench.db.let_relay_in("public.quiet")
    for case in (PLAIN, *CASES):
        measure(bench, case)
    rounds = bench.run.size(16, 3)

    def say(number, runs):
        bench.say(f"round {number} of {rounds}: "
                  + ", ".join(f"{name} {rate:,.0f}/s of {floor:,.0f}/s" for name, (floor, rate) in runs.items()))

    ways = {case.name: functools.partial(measure, bench, case) for case in CASES}
    measured = between_floors(functools.partial(measure, bench, PLAIN), ways, rounds, say)
    answers = []
    for case in CASES:
        floors, rates = measured[case.name]
        answer = Answer(case.name, "events/s", rates, floors, case.must, case.aim)
        answer.note = (f"floor: a plain table with the same indexes, before and after each run; {CLIENTS} clients of pgbench"
                       + (f"; at least {LEAST_DELIVERED:.0%} was delivered meanwhile" if case.serves == case.table else ""))
        answers.append(answer)
    return answers
