"""What do 2,000 tasks a second, produced and done, leave of a database's other work?"""

import functools
import os
import re
import subprocess

from bench.answer import Answer, BenchFailed
from bench.harness import last_stats, read_sql
from bench.turns import rotated
from tests.support.postgres import RELAY_ROLE, bin_folders
from tests.support.process import find_program, wait_until

CLIENTS, PRODUCERS, TASKS, A_TRANSACTION = 4, 2, 2000, 10
PAYLOAD = '{"note": "' + "x" * 288 + '"}'
TABLE = "table: public.tasks, columns: { id: id, priority: priority, payload: payload }"
QUEUES = {
    "unordered": f"{TABLE}, ordering: unordered",
    "lease": "table: public.tasks, columns: { id: id, payload: payload }, ordering: lease",
}


class Pgbench:
    """Running, from the start."""

    def __init__(self, bench, seconds, *arguments):
        command = [find_program("pgbench", *bin_folders()), "-n", "-M", "prepared", "-j", "1", "-T", str(seconds), *arguments,
                   bench.db.superuser_dsn]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.timeout_s = seconds + 60

    def rate(self):
        """Transactions a second, at the end."""
        said = self.process.communicate(timeout=self.timeout_s)[0]
        rate = re.search(r"^tps = ([\d.]+)", said, re.MULTILINE)
        if self.process.returncode != 0 or not rate:
            raise BenchFailed(f"pgbench: {said}")
        return float(rate.group(1))

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def other_work(bench, seconds):
    """pgbench's own workload, in transactions a second. A page's first change after a checkpoint is written whole, so each
    run begins with one."""
    bench.db.query("checkpoint")
    work = Pgbench(bench, seconds, "-c", str(CLIENTS))
    try:
        return work.rate()
    finally:
        work.close()


def empty_table(bench):
    bench.db.query("truncate public.tasks restart identity")


def producers(bench, seconds):
    script = os.path.join(bench.folder, "tasks_insert.sql")
    with open(script, "w", encoding="ascii") as file:
        file.write(read_sql("tasks_insert.sql").replace("PAYLOAD", PAYLOAD))
    return Pgbench(bench, seconds, "-c", str(PRODUCERS), "-R", str(TASKS // A_TRANSACTION), "-f", script)


def beside_producers(bench, seconds):
    """other_work beside tasks that come, and its rate."""
    making = producers(bench, seconds + 1)
    try:
        rate = other_work(bench, seconds)
        made = making.rate() * A_TRANSACTION
    finally:
        making.close()
    if made < 0.9 * TASKS:
        raise BenchFailed(f"{made:,.0f} tasks/s came")
    return rate


def beside_tasks_left(bench, seconds):
    """Beside tasks that nobody does: what their arrival takes by itself."""
    empty_table(bench)
    return beside_producers(bench, seconds)


def beside_tasks_done(bench, queue, seconds):
    empty_table(bench)
    relay = bench.relay("{ type: discard }", queue)
    try:
        relay.start()
        wait_until(lambda: relay.logged("relay.start"), what="the relay to start")
        rate = beside_producers(bench, seconds)
        wait_until(lambda: not bench.db.query("select 1 from public.tasks limit 1"), 10, "the relay to do the last tasks")
        if relay.stop() != 0:
            raise BenchFailed(f"the relay ended with {relay.exit_code}\n{relay.process.log_tail()}")
        done, ids = int(last_stats(relay)["delivered"]), bench.db.value("select last_value from public.tasks_id_seq")
        if done != ids:
            raise BenchFailed(f"{ids:,} tasks came and {done:,} were done")
        return rate
    finally:
        relay.close()


def ask(bench):
    bench.db.psql(read_sql("tasks_table.sql"))
    bench.db.let_relay_in("public.tasks")
    bench.db.query(f"grant update (id) on public.tasks to {RELAY_ROLE}")  # to lock rows
    done = subprocess.run([find_program("pgbench", *bin_folders()), "-i", "-q", "-s", "10", bench.db.superuser_dsn],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchFailed(f"pgbench -i: {done.stderr}")
    # Each run is to have its share of autovacuum, which sleeps for a minute otherwise.
    bench.db.query("alter system set autovacuum_naptime = '3s'")
    bench.db.query("select pg_reload_conf()")
    try:
        return measure(bench, *bench.run.size((12, 5), (3, 2)))
    finally:
        bench.db.query("alter system reset autovacuum_naptime")
        bench.db.query("select pg_reload_conf()")


def measure(bench, rounds, seconds):
    """The machine's speed changes within minutes: so many short rounds, and each run has each place in turn."""
    left = bench.run.size({"left": lambda: beside_tasks_left(bench, seconds)}, {})
    runs = {"alone": lambda: other_work(bench, seconds), **left,
            **{name: functools.partial(beside_tasks_done, bench, queue, seconds) for name, queue in QUEUES.items()}}
    rates = {name: [] for name in runs}
    for number in range(rounds):
        for name in rotated(list(runs), number):
            rates[name].append(runs[name]())
        bench.say(f"round {number + 1} of {rounds}: pgbench " + ", ".join(f"{name} {rates[name][-1]:,.0f}" for name in runs)
                  + " transactions/s")
    note = (f"floor: pgbench alone, {CLIENTS} clients, scale 10; autovacuum each 3 s; {rounds} rounds of {seconds} s; {PRODUCERS} producers, "
            f"{A_TRANSACTION} tasks a transaction")
    work = f"pgbench beside {TASKS:,} tasks/s"
    answers = [Answer(f"{work}, {name}", "transactions/s", rates[name], rates["alone"], must=0.90, aim=0.95, note=note) for name in QUEUES]
    return answers + [Answer(f"{work} that come and are left", "transactions/s", rates[name], rates["alone"],
                             note=f"{note}; no relay: what the tasks' arrival takes by itself") for name in left]
