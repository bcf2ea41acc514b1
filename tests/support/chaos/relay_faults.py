"""Faults of relays, of their sessions, and of the server."""

import os
import signal

import psycopg2

from tests.support.chaos.bounds import locks_held, note_lost_claims
from tests.support.chaos.fleet import CONNECTIONS, KEYS, KEYS_MOST, PER_KEY
from tests.support.process import wait_until

TRIES = 200
SESSIONS = "select pid from pg_stat_activity where application_name = %s and datname = current_database() order by pid"


# ---- a relay ----

def relay_kill(stage, step):
    """If it can be, while it has something in hand. It stands still while that is counted, and dies as it stood."""
    place = stage.fleet.places[step.who]
    with place.busy:
        place.restart_if_ended()
        noted = stage.note(step, 0, place.name)
        for _ in range(TRIES):
            place.pause()
            noted.in_flight = locks_held(stage, place.name) * PER_KEY
            if noted.in_flight > 0:
                break
            place.relay.resume()
            stage.wait(0.005)
        else:
            stage.target.may_tear()
        place.kill()
        place.start()
    yield


def relay_restart(stage, step):
    place = stage.fleet.places[step.who]
    with place.busy:
        place.restart_if_ended()
        noted = stage.note(step, 0, place.name)
        if not place.stop():
            noted.in_flight = CONNECTIONS * KEYS_MOST * PER_KEY
        place.start()
    yield


def relay_pause(stage, step):
    place = stage.fleet.places[step.who]
    with place.busy:
        stage.note(step, 0, place.name)
        place.pause()
        yield
        place.relay.resume()


def relay_hangup(stage, step):
    for place in stage.fleet.places if step.who is None else [stage.fleet.places[step.who]]:
        with place.busy:
            stage.note(step, 0, place.name)
            if place.relay.logged("msg=relay.start"):  # before that a signal is not expected and ends it
                place.relay.configure(place.config(keys_per_claim=KEYS - step.pick % 3) if step.pick % 4 else "broken: yes")
                place.relay.send(signal.SIGHUP)
    yield


# ---- sessions and the server ----

def one_session(stage, step):
    """(relay's name, process id of one of its sessions or None)"""
    name = stage.fleet.places[step.who].name
    pids = [pid for pid, in stage.db.query(SESSIONS, (name,))]
    return name, pids[step.pick % len(pids)] if pids else None


def end_of_statement(function):
    def do(stage, step):
        name, pid = one_session(stage, step)
        if pid is not None:
            stage.note(step, (locks_held(stage, name, pid) + KEYS) * PER_KEY, name)
            stage.db.query(f"select {function}(%s)", (pid,))
        yield
    return do


def server_restart(mode):
    def do(stage, step):
        with stage.hold("server"):
            note_lost_claims(stage, step, stage.fleet.names(None))
            stage.db.server.restart(mode)
        yield
    return do


def is_gone(stage, pid):
    """The server answers, and not as long as it has not noticed."""
    try:
        return not stage.db.query("select pid from pg_stat_activity where pid = %s", (pid,))
    except psycopg2.OperationalError:
        return False


def server_backend_dies(stage, step):
    with stage.hold("server"):
        _, pid = one_session(stage, step)
        if pid is not None:
            note_lost_claims(stage, step, stage.fleet.names(None))
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: is_gone(stage, pid), 60, "the server to be back")
    yield


KINDS = {
    "relay.kill": relay_kill,
    "relay.restart": relay_restart,
    "relay.pause": relay_pause,
    "relay.hangup": relay_hangup,
    "session.terminate": end_of_statement("pg_terminate_backend"),
    "session.cancel": end_of_statement("pg_cancel_backend"),
    "server.fast": server_restart("fast"),
    "server.immediate": server_restart("immediate"),
    "server.backend_dies": server_backend_dies,
}
