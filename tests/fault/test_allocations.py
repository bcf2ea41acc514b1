"""Every allocation of ours in a short run is refused, one in each run, or that one and all after it, until a run makes so
few that none is left to refuse. tests/support/course.py says what is right. libpq's, librdkafka's and OpenSSL's own are
left out; so are the scenes of tests/unit/memory/allocation_test.c and its neighbours, which need no database.

A default run refuses every STEP'th allocation, the same ones every time, once and from then on by turns; --deep each of
them in both ways."""

import itertools
import os
import zlib
from collections import Counter

import pytest

from tests.support import targets
from tests.support.course import Course, Failed
from tests.support.journal import read_lines
from tests.support.postgres import RELAY_ROLE
from tests.support.process import wait_until
from tests.support.relay import Relay, binary, run_command

DEEP = os.environ.get("PGCOURIER_DEEP") == "1"
STEP = 60
WAYS = ("error", "errors")  # once, and from then on: the actions of relay/base/fault_point.h
NO_MEMORY = (70, "pgcourier: out of memory")
TAKE = "update outbox.parked set token = null, next_at = clock_timestamp() where token is not null returning 1"
BACKENDS = "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'pgcourier'"
NEXT = """
create table public.sent (id bigserial primary key, order_id bigint, payload bytea);
create index on public.sent (order_id, id);
"""


class ScarceCourse(Course):
    """how: the fault, as PGCOURIER_FAULT has it."""

    events = 64

    def __init__(self, db, folder):
        self.program, self.folder = binary(["dev"]), folder
        super().__init__(db, lambda run: targets.FileTarget(folder / f"{run}.jsonl"))

    def hurt(self, config, how):
        env = {"PGCOURIER_FAULT": how, "PGCOURIER_FAULT_LOG": str(self._log())}
        return Relay(config, until_empty=True, program=self.program, env=env)

    def failed(self, relay):
        return [Failed(fault["at"] / 1e6, f"allocation {fault['hit']}") for fault in read_lines(self._log())]

    def wait_for_backends(self):
        """Until what it asked for in its last moment has been done."""
        wait_until(lambda: self.shop.db.value(BACKENDS) == 0, 30, "the backends of a relay that has ended to end")

    def _log(self):
        return self.folder / f"{self.runs}.faults"


class Unordered(ScarceCourse):
    ordered, queue = False, {"ordering": "unordered"}

    def __init__(self, db, folder):
        super().__init__(db, folder)
        db.query(f"grant update (id) on public.events to {RELAY_ROLE}")


class Leased(ScarceCourse):
    queue = {"ordering": "lease"}

    def finish(self, config):
        self.wait_for_backends()
        self.shop.db.query(TAKE)  # as if they had run out
        super().finish(config)


class Staged(ScarceCourse):
    """Another queue gets what this one has delivered."""

    queue = {"then": "next"}

    def __init__(self, db, folder):
        super().__init__(db, folder)
        db.psql(NEXT)
        db.let_relay_in("public.sent")
        db.let_hand_on("public.sent")

    def config(self, target, relay):
        sink = self._next_target().sink()
        return (super().config(target, relay).replace("queues:\n", f"  next: {{ {sink} }}\nqueues:\n") +
                "  next: { table: public.sent, columns: { key: order_id, payload: payload }, sink: next, destination: sent }\n")

    def check(self, receipts, outcome):
        super().check(receipts, outcome)
        assert self.shop.db.value("select count(*) from public.sent") == 0, "it ended with work left in the next queue"
        handed_on = {receipt.id: receipt for receipt in self._next_target().receipts()}
        assert by_key(handed_on.values()) == by_key(self.shop.journal), "not each was handed on once and in order"

    def start_anew(self):
        super().start_anew()
        self.shop.db.query("truncate public.sent")

    def _next_target(self):
        return targets.FileTarget(self.folder / f"{self.runs}.next.jsonl")


def by_key(events):
    lanes = {}
    for event in sorted(events, key=lambda event: event.id):
        lanes.setdefault(event.key, []).append(event.hash)
    return lanes


def refusals(name, step):
    """Lists of faults, in order of the allocations."""
    if DEEP:
        return ([f"memory.allocate:{number}:{way}" for way in WAYS] for number in itertools.count(1))
    first = 1 + zlib.crc32(name.encode()) % step
    return ([f"memory.allocate:{number}:{way}"] for number, way in zip(itertools.count(first, step), itertools.cycle(WAYS)))


@pytest.mark.parametrize("scene", [ScarceCourse, Unordered, Leased, Staged])
def test_the_history_is_right_whichever_allocation_fails(db, tmp_path, scene):
    course = scene(db, tmp_path)
    ends = Counter()
    for faults in refusals(scene.__name__, STEP):
        outcomes = [course.run(fault) for fault in faults]
        for fault, outcome in zip(faults, outcomes):
            assert not outcome.failed or (outcome.code, outcome.reason) == NO_MEMORY, f"{fault}: {outcome}"
            ends[outcome.code] += 1
        if not any(outcome.failed for outcome in outcomes):
            break
    print(f"{ends[70]} allocations were refused, and {ends[0]} runs had none left to refuse")
    assert ends[70] > 3


COMMANDS = {
    "check-config": ["-c", "{config}", "--database"], "status": ["-c", "{config}"], "failures": ["-c", "{config}"],
    "dead list": ["-c", "{config}"], "dead retry": ["-c", "{config}", "--all"], "dead drop": ["-c", "{config}", "--all"],
    "pause": ["-c", "{config}", "shop"], "resume": ["-c", "{config}", "shop"], "drain": ["-c", "{config}", "shop"],
    "publish": ["-d", "{producer}", "--key", "k", "--payload", "1", "--header", "a=b"],
}  # migrate, schedule, take and what goes with it allocate nothing


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_says_so_whichever_allocation_fails(db, tmp_path, command):
    course, config, log = ScarceCourse(db, tmp_path), tmp_path / "pgcourier.yaml", tmp_path / "faults"
    db.let_operator_in("public.events")
    course.begin()
    config.write_text(course.config(course.new_target(1), "first").replace(db.dsn, db.operator_dsn))
    arguments = [*command.split(), *(each.format(config=config, producer=db.producer_dsn) for each in COMMANDS[command])]
    refused = 0
    for faults in refusals(command, STEP if "-c" in arguments else 4):
        ends = [run_refused(arguments, fault, log) for fault in faults]
        refused += sum(ends)
        if not any(ends):
            break
    print(f"{command}: {refused} allocations were refused")
    assert refused > 0


def run_refused(arguments, fault, log):
    """Whether an allocation was refused."""
    log.unlink(missing_ok=True)
    done = run_command(*arguments, env={"PGCOURIER_FAULT": fault, "PGCOURIER_FAULT_LOG": str(log)})
    failed = log.exists() and log.stat().st_size > 0
    said = [line for line in done.stderr.splitlines() if line.startswith("pgcourier: ")]
    assert (done.returncode, said) == ((70, [NO_MEMORY[1]]) if failed else (0, [])), f"{fault}: {done}"
    return failed
