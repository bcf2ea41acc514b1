"""What is under test logs in with few rights: PostgreSQL's own log says who came. A relay or a command that is a superuser,
or owns a table, fails its test, unless the test is about just that and says why: @pytest.mark.superuser("reason")."""

import contextlib
import functools
import re

import psycopg2

from tests.support.postgres import LOGINS, OWNER_ROLE, SUPERUSER, TESTS, Postgres
from tests.support.process import open_servers

LOGIN = re.compile(r"\[(\d+)\] .* connection authorized: user=(\S+) database=(\S+)(?: application_name=(.*?))?(?: SSL enabled .*)?$")
# What PostgreSQL says next when there is no such role: it was nobody.
NOBODY = re.compile(r'\[(\d+)\] .* FATAL:  role "(.*)" does not exist$')
OWNERS_WORK = ("pgcourier/migrate", "pgcourier/schedule")

# After one of these a role may be gone, or have less than it logged in with: those that have logged in are looked at before.
CHANGES_ROLES = re.compile(r"\b(drop|alter)\s+(role|user|group|owned)\b|\breassign\s+owned\b", re.IGNORECASE)

TOO_MIGHTY = """
with owner as (select distinct relowner as oid from pg_class where relkind in ('r', 'p') and relnamespace <> 'pg_catalog'::regnamespace
                                                                 and relnamespace <> 'information_schema'::regnamespace)
select case when r.rolsuper then 'a superuser'
            when exists (select from owner o where pg_has_role(r.oid, o.oid, 'member')) then 'who owns a table or may become its owner'
       end from pg_roles r where r.rolname = %s"""
UNKNOWN = "of whom nobody can say any more whether it was a superuser"

_found_before = []


def _might(server, user, database, name):
    """Why this login is too mighty, or None. The harness has made those of LOGINS; of any other that cannot be asked after,
    because it is gone or the server is down, the worst is thought."""
    if user == SUPERUSER:
        return "a superuser"
    for where in (database, "postgres"):  # of a database that is gone, its tables are, too
        with contextlib.suppress(psycopg2.OperationalError):
            rows = server.query(TOO_MIGHTY, (user,), dbname=where)
            why = rows[0][0] if rows else UNKNOWN
            return None if name in OWNERS_WORK and why and "owns" in why else why
    return None if user in LOGINS or (user == OWNER_ROLE and name in OWNERS_WORK) else UNKNOWN


def _collect(server):
    """One text for each login since the last call that should not have been."""
    with open(server.log_path, errors="replace") as log:
        log.seek(getattr(server, "logins_read", 0))
        lines = log.read().splitlines()
        server.logins_read = log.tell()
    found, nobody = ([pattern.search(line) for line in lines] for pattern in (LOGIN, NOBODY))
    nobody = {refusal.groups() for refusal in nobody if refusal}
    logins = sorted({login.groups(default="")[1:] for login in found if login and login.groups()[:2] not in nobody})
    texts = [(user, name, _might(server, user, database, name)) for user, database, name in logins if name != TESTS]
    return [f"{name or 'a program without a name'} logged in as {user}, {why}" for user, name, why in texts if why]


def collect():
    """The same for all servers, those that were closed in between among them."""
    texts = [*_found_before]
    _found_before.clear()
    for server in open_servers():
        if isinstance(server, Postgres):
            texts += _collect(server)
    return texts


def _collecting(close):
    @functools.wraps(close)
    def collect_and_close(server):
        with contextlib.suppress(FileNotFoundError):
            _found_before.extend(_collect(server))
        close(server)

    return collect_and_close


def _collecting_before_changes(run):
    @functools.wraps(run)
    def collect_and_run(server, sql, *arguments, **options):
        if CHANGES_ROLES.search(sql):
            with contextlib.suppress(FileNotFoundError):
                _found_before.extend(_collect(server))
        return run(server, sql, *arguments, **options)

    return collect_and_run


def install():
    """A server that is closed takes its log with it, and a statement may take the roles."""
    Postgres.close = _collecting(Postgres.close)
    Postgres.query = _collecting_before_changes(Postgres.query)
    Postgres.psql = _collecting_before_changes(Postgres.psql)


def complaint(mark, offences):
    """What is wrong with a test's logins; None: nothing. `mark`: its superuser mark, or None."""
    if mark and not (mark.args and mark.args[0]):
        return "the mark `superuser` needs a reason"
    if mark and not offences:
        return "nothing here logged in as a superuser: the mark `superuser` is not needed"
    return None if mark else "\n".join(offences) or None
