"""How many events a fault may leave without a known outcome, noted before it is done: those of the keys whose locks are
held just then (and, where the relay runs on between the count and the fault, of those that it may lock meanwhile), or as
many deliveries as a sink may have in flight. A fault that costs nothing but time is noted with 0: nothing may come twice
for it."""

import psycopg2

from tests.support.chaos.fleet import CONNECTIONS, KEYS, KEYS_MOST, PER_KEY, SINK_IN_FLIGHT

TRIALS = 8  # that a Kafka producer may make, and give up, while its broker is silent

LOCKS_HELD = ("select count(*) from pg_locks join pg_stat_activity using (pid)"
              " where locktype = 'advisory' and objsubid = 2 and application_name = %s and (%s is null or pid = %s)")


def locks_held(stage, name, pid=None):
    """None are, when nobody answers: then the sessions have ended, or are about to."""
    try:
        return stage.db.value(LOCKS_HELD, (name, pid, pid))
    except psycopg2.OperationalError:
        return 0


def note_lost_claims(stage, step, names):
    for name in names:
        stage.note(step, (locks_held(stage, name) + CONNECTIONS * KEYS) * PER_KEY, name)


def note_break(stage, step, which, names=None):
    """Every connection of these relays, or of all that the step is about, breaks."""
    names = names or stage.fleet.names(step.who)
    if which == "database":
        note_lost_claims(stage, step, names)
        return
    for name in names:
        stage.note(step, SINK_IN_FLIGHT + (TRIALS if stage.sink == "kafka" else 0), name)


def one_connection(which):
    """What is in flight over one."""
    return KEYS_MOST * PER_KEY if which == "database" else SINK_IN_FLIGHT
