"""The variants of claim.pml, lease.pml, pull.pml and wake.pml, and how Spin is asked about one: python3 -m tests.model.models [WORD...]
prints a line for each variant whose name has all the words, or for all of them; the deep ones with PGCOURIER_DEEP=1.

A safe variant has to hold in every state there is. A mutant is the model with one mistake in it, and has to fail, by the
very assertion or property that it names: so every assertion is known to be able to fail. Running out of depth or memory
is neither: nothing is known then, and that is a failure."""

import collections
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile
import time

FOLDER = os.path.dirname(os.path.abspath(__file__))
HOLDS, FAILS = "holds", "fails"
ALL = "LOSS ORDER DUPLICATES EXCLUSION"
DEPTH_MAX = 20_000     # steps of one path; the longest is some hundred
MEMORY_MAX_MB = 1_500  # of one search
DEEP_MEMORY_MAX_MB = 8_000
PATIENCE_S = 1_800     # a search that is still alive then is stuck

Variant = collections.namedtuple("Variant", "name model expected checks flags deep", defaults=("", False))
Outcome = collections.namedtuple("Outcome", "verdict states seconds detail")

VARIANTS = [
    # The claim.
    Variant("claim: 2 relays, 3 events, 2 faults", "claim", HOLDS, ALL),
    Variant("claim: 2 relays, 2 events, 3 faults", "claim", HOLDS, ALL, "EVENTS=2 FAULTS=3"),
    Variant("claim: 3 relays, 2 events, 1 fault", "claim", HOLDS, ALL, "RELAYS=3 EVENTS=2 FAULTS=1"),
    Variant("claim: copies arrive late, 3 events, 1 fault", "claim", HOLDS, ALL, "LATE_COPIES FAULTS=1"),
    Variant("claim: copies arrive late, 2 events, 2 faults", "claim", HOLDS, ALL, "LATE_COPIES EVENTS=2"),
    Variant("claim: settled on the side as well, 2 events, 2 faults", "claim", HOLDS, ALL, "SIDE EVENTS=2"),
    Variant("claim: lock kept beyond its transaction, 2 events, 2 faults", "claim", HOLDS, ALL, "KEEP EVENTS=2"),
    Variant("claim: lock kept beyond its transaction, copies arrive late, 1 fault", "claim", HOLDS, ALL,
            "KEEP LATE_COPIES EVENTS=2 FAULTS=1"),
    Variant("claim: no lock at all, still in order and without loss", "claim", HOLDS, "LOSS ORDER", "NO_LOCK FAULTS=1 EVENTS=2"),
    Variant("claim: read before the lock, still in order and without loss", "claim", HOLDS, "LOSS ORDER",
            "READS_BEFORE_THE_LOCK FAULTS=1"),
    Variant("claim: every event is delivered in the end", "claim", HOLDS, "LIVENESS", "FAULTS=1"),
    Variant("claim: every event is delivered in the end, side and late copies", "claim", HOLDS, "LIVENESS",
            "SIDE LATE_COPIES EVENTS=2 FAULTS=1"),
    Variant("claim: every event is delivered in the end, lock kept", "claim", HOLDS, "LIVENESS", "KEEP EVENTS=2 FAULTS=1"),
    Variant("claim: 3 relays, 2 events, 2 faults", "claim", HOLDS, ALL, "RELAYS=3 EVENTS=2", True),
    Variant("claim: 2 relays, 4 events, 1 fault", "claim", HOLDS, ALL, "EVENTS=4 FAULTS=1", True),
    Variant("claim: settled on the side as well, 3 events, 1 fault", "claim", HOLDS, ALL, "SIDE FAULTS=1", True),
    Variant("claim: lock kept beyond its transaction, 3 events, 2 faults", "claim", HOLDS, ALL, "KEEP", True),

    Variant("mutant: lock and read in one statement", "claim", FAILS, "DUPLICATES", "READS_IN_THE_LOCKING_STATEMENT FAULTS=0"),
    Variant("mutant: rows read before the lock, not read again", "claim", FAILS, "DUPLICATES", "READS_BEFORE_THE_LOCK FAULTS=0"),
    Variant("mutant: unlocked before the commit is visible", "claim", FAILS, "DUPLICATES", "UNLOCKS_BEFORE_COMMIT FAULTS=0"),
    Variant("mutant: claim ended while its side settlement is on the way", "claim", FAILS, "DUPLICATES",
            "SIDE COMMIT_OVERTAKES_SIDE FAULTS=0"),
    Variant("mutant: kept lock ends with its transaction: duplicates", "claim", FAILS, "DUPLICATES",
            "KEEP LOCK_ENDS_WITH_ITS_TRANSACTION FAULTS=0"),
    Variant("mutant: kept lock ends with its transaction: two deliver one key", "claim", FAILS, "EXCLUSION",
            "KEEP LOCK_ENDS_WITH_ITS_TRANSACTION FAULTS=0"),
    Variant("mutant: kept lock freed before its key is settled", "claim", FAILS, "DUPLICATES", "KEEP UNLOCKS_BEFORE_COMMIT FAULTS=0"),
    Variant("mutant: session claims again what it keeps", "claim", FAILS, "DUPLICATES", "KEEP CLAIMS_WHAT_IT_KEEPS FAULTS=0"),
    Variant("mutant: no lock: duplicates", "claim", FAILS, "DUPLICATES", "NO_LOCK FAULTS=0"),
    Variant("mutant: no lock: two deliver one key", "claim", FAILS, "EXCLUSION", "NO_LOCK FAULTS=0"),
    Variant("mutant: rows locked instead of the key: order", "claim", FAILS, "ORDER", "LOCKS_ROWS FAULTS=0"),
    Variant("mutant: rows locked instead of the key: two deliver one key", "claim", FAILS, "EXCLUSION", "LOCKS_ROWS FAULTS=0"),
    Variant("mutant: newest first", "claim", FAILS, "ORDER", "NEWEST_FIRST FAULTS=0"),
    Variant("mutant: producers commit ids out of order", "claim", FAILS, "ORDER", "IDS_COMMIT_OUT_OF_ORDER FAULTS=0"),
    Variant("mutant: goes on after a failed event", "claim", FAILS, "ORDER", "GOES_ON_AFTER_A_FAILURE FAULTS=0"),
    Variant("mutant: a wait hides the event, not its key", "claim", FAILS, "ORDER", "WAIT_HIDES_THE_EVENT_ALONE FAULTS=0"),
    Variant("mutant: commit before ack", "claim", FAILS, "LOSS", "COMMITS_BEFORE_DELIVERY FAULTS=0"),
    Variant("mutant: whole claim settled, not its acked prefix", "claim", FAILS, "LOSS", "SETTLES_THE_WHOLE_CLAIM FAULTS=0"),
    Variant("mutant: lock outlives its relay", "claim", FAILS, "LIVENESS", "LOCK_OUTLIVES_ITS_RELAY FAULTS=1"),
    Variant("mutant: a parked key never comes back", "claim", FAILS, "LIVENESS", "WAITS_NEVER_END FAULTS=0"),

    # The protocol of leases.
    Variant("lease: 2 events, 1 fault", "lease", HOLDS, f"{ALL} TERMS", "FAULTS=1"),
    Variant("lease: 1 event, 2 faults", "lease", HOLDS, f"{ALL} TERMS", "EVENTS=1"),
    Variant("lease: every event is delivered in the end", "lease", HOLDS, "LIVENESS", "EVENTS=1 FAULTS=1"),
    Variant("lease: ends with its backend, 2 events, 1 fault", "lease", HOLDS, f"{ALL} TERMS", "BACKEND FAULTS=1"),
    Variant("lease: ends with its backend, 1 event, 2 faults", "lease", HOLDS, f"{ALL} TERMS", "BACKEND EVENTS=1", True),
    Variant("lease: ends with its backend, 2 events, 2 faults", "lease", HOLDS, f"{ALL} TERMS", "BACKEND", True),
    Variant("lease: 2 events, 2 faults", "lease", HOLDS, f"{ALL} TERMS", "", True),
    Variant("lease: every event is delivered in the end, 2 events", "lease", HOLDS, "LIVENESS", "FAULTS=1", True),

    # Workers that pull, beside a relay.
    Variant("pull: 2 workers, 1 relay, 2 events, 2 terms run out", "pull", HOLDS, f"{ALL} VERDICTS"),
    Variant("pull: every event is delivered in the end", "pull", HOLDS, "LIVENESS"),

    Variant("mutant: workers settle without token", "pull", FAILS, "DUPLICATES", "SETTLES_WITHOUT_TOKEN"),
    Variant("mutant: workers take what waits", "pull", FAILS, "DUPLICATES", "TAKES_WHAT_WAITS"),
    Variant("mutant: late verdicts need no lock", "pull", FAILS, "VERDICTS", "LATE_VERDICTS_NEED_NO_LOCK"),
    Variant("mutant: a relay that takes over leaves the token", "pull", FAILS, "VERDICTS", "RELAY_LEAVES_THE_TOKEN"),

    Variant("mutant: expiry judged by a relay's clock", "lease", FAILS, "TERMS", "EXPIRY_BY_A_RELAYS_CLOCK FAULTS=0"),
    Variant("mutant: settled without token", "lease", FAILS, "TERMS", "SETTLES_WITHOUT_TOKEN"),
    Variant("mutant: settled by owner's name instead of token", "lease", FAILS, "TERMS", "SETTLES_BY_OWNER"),
    Variant("mutant: settled while the relay's clock allows, without token", "lease", FAILS, "TERMS", "SETTLES_BY_OWN_CLOCK"),
    Variant("mutant: renewed without token", "lease", FAILS, "TERMS", "RENEWS_WITHOUT_TOKEN"),
    Variant("mutant: renewed at two thirds of the term", "lease", FAILS, "DUPLICATES", "RENEWS_AT_TWO_THIRDS FAULTS=0"),
    Variant("mutant: rows read before the lease", "lease", FAILS, "DUPLICATES", "READS_BEFORE_THE_LEASE FAULTS=0"),
    Variant("mutant: term counted from the answer", "lease", FAILS, "EXCLUSION", "COUNTS_FROM_THE_ANSWER"),
    Variant("mutant: lease hides its events, not their key", "lease", FAILS, "ORDER", "LEASES_THE_EVENTS_ALONE FAULTS=0"),
    Variant("mutant: ends with its backend, settled without token", "lease", FAILS, "TERMS", "BACKEND SETTLES_WITHOUT_TOKEN"),
    Variant("mutant: leases never expire", "lease", FAILS, "LIVENESS", "NEVER_EXPIRES FAULTS=1"),

    # Relays that rest, and producers that wake them.
    Variant("wake: 2 relays, 2 producers of 1 event, 1 fault", "wake", HOLDS, "STRANDED", "EVENTS=1"),
    Variant("wake: 1 relay, 2 producers of 2 events, 2 faults", "wake", HOLDS, "STRANDED", "RELAYS=1 FAULTS=2"),
    Variant("wake: every event is taken in the end", "wake", HOLDS, "LIVENESS", "RELAYS=1 EVENTS=1"),
    Variant("wake: every event is taken in the end, 2 relays", "wake", HOLDS, "LIVENESS", "EVENTS=1", True),
    Variant("wake: 2 relays, 2 producers of 2 events, 1 fault", "wake", HOLDS, "STRANDED", "", True),

    Variant("mutant: rests without waiting for writers", "wake", FAILS, "STRANDED", "WAITS_FOR_NO_WRITER FAULTS=0"),
    Variant("mutant: last look before the writers end", "wake", FAILS, "STRANDED", "LOOKS_BEFORE_THE_WRITERS_END FAULTS=0"),
    Variant("mutant: writers noted before the lock", "wake", FAILS, "STRANDED", "NOTES_WRITERS_BEFORE_THE_LOCK FAULTS=0"),
    Variant("mutant: lock taken after the last look", "wake", FAILS, "STRANDED", "LOCKS_AFTER_THE_LAST_LOOK FAULTS=0"),
    Variant("mutant: listens after the last look", "wake", FAILS, "STRANDED", "LISTENS_AFTER_THE_LAST_LOOK FAULTS=0"),
    Variant("mutant: forgets a notification that came early", "wake", FAILS, "STRANDED", "FORGETS_WHAT_CAME_EARLY FAULTS=0"),
    Variant("mutant: a lost connection wakes no relay", "wake", FAILS, "LIVENESS", "SLEEPS_ON_WITHOUT_A_CONNECTION RELAYS=1 EVENTS=1"),
    Variant("mutant: producer asks before it has the table", "wake", FAILS, "STRANDED", "ASKS_BEFORE_IT_HAS_THE_TABLE FAULTS=0"),
    Variant("mutant: producer asks by a snapshot", "wake", FAILS, "STRANDED", "ASKS_BY_AN_OLD_SNAPSHOT FAULTS=0"),
    Variant("mutant: producer asks for a lock that relays share", "wake", FAILS, "STRANDED", "ASKS_IN_SHARED_MODE FAULTS=0"),
    Variant("mutant: table unlocked before the commit is visible", "wake", FAILS, "STRANDED", "UNLOCKS_BEFORE_IT_IS_VISIBLE FAULTS=0"),
]

TRUNCATED = re.compile(r".*(?:max search depth too small|MEMLIM|out of memory|hash ?table full|aborting).*", re.IGNORECASE)
LINE = "{name:66} expected={expected:5} {verdict:5} states={states:<9} {seconds:5.1f} s{detail}"


class ModelError(Exception):
    """Spin, the compiler or the verifier did not do its work."""


def definitions(variant):
    checks = [check if check == "LIVENESS" else f"CHECK_{check}" for check in variant.checks.split()]
    return [f"-D{name}" for name in [*checks, *variant.flags.split()]]


def run_tool(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return done.returncode, done.stdout + done.stderr


def must_run(command, folder):
    code, output = run_tool(command, folder)
    if code != 0:
        raise ModelError(f"{command[0]} exited with {code}: {output}")


def judge(output, liveness):
    """(verdict, states, detail) of what a verifier printed; a verdict other than HOLDS and FAILS says what went wrong."""
    errors = re.search(r"errors: (\d+)", output)
    states = re.search(r"(\d+) states, stored", output)
    count = int(states.group(1)) if states else 0
    truncated = TRUNCATED.search(output)
    if truncated or not errors or not states:
        return "truncated", count, " " + (truncated.group(0).strip() if truncated else output.strip()[-300:])
    if errors.group(1) == "0":
        return HOLDS, count, ""
    told = next((line for line in output.splitlines() if line.startswith("pan:1:")), "")
    wanted = "acceptance cycle" if liveness else "assertion violated"
    return (FAILS if wanted in told else "broken"), count, "" if wanted in told else f" {told}"


def check(variant):
    """Runs one variant in a folder of its own."""
    began = time.monotonic()
    liveness = "LIVENESS" in variant.checks
    memory = DEEP_MEMORY_MAX_MB if variant.deep else MEMORY_MAX_MB
    with tempfile.TemporaryDirectory(prefix="pgcourier-model.") as folder:
        must_run(["spin", *definitions(variant), "-a", os.path.join(FOLDER, f"{variant.model}.pml")], folder)
        kind = ["-DNFAIR=3"] if liveness else ["-DSAFETY", "-DNOCLAIM"]
        speed = "-O1" if variant.expected == HOLDS else "-O0"  # a mutant fails sooner than its verifier is compiled
        must_run(["gcc", speed, "-w", *kind, f"-DMEMLIM={memory}", "-o", "pan", "pan.c"], folder)
        _, output = run_tool(["./pan", f"-m{DEPTH_MAX}", *(["-a", "-f"] if liveness else [])], folder)
    verdict, states, detail = judge(output, liveness)
    return Outcome(verdict, states, time.monotonic() - began, detail)


def line(variant, outcome):
    return LINE.format(**variant._asdict(), **outcome._asdict())


def main(words):
    deep = os.environ.get("PGCOURIER_DEEP") == "1"
    chosen = [variant for variant in VARIANTS if (deep or not variant.deep) and all(word in variant.name for word in words)]
    failed = not chosen
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for variant, outcome in zip(chosen, pool.map(check, chosen)):
            print(line(variant, outcome), flush=True)
            failed = failed or outcome.verdict != variant.expected
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
