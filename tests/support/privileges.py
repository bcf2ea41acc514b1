"""What is under test logs in with few rights: PostgreSQL's own log says who came. A relay or a command that is a superuser,
or owns a table, fails its test, unless the test is about just that and says why: @pytest.mark.superuser("reason")."""

import contextlib
import functools
import re

import psycopg2

from tests.support.postgres import SUPERUSER, TESTS, Postgres
from tests.support.process import open_servers

LOGIN = re.compile(r" connection authorized: user=(\S+) database=(\S+)(?: application_name=(.*?))?(?: SSL enabled .*)?$")
# By application_name, so that what gives itself another one is under suspicion.
OURS = {TESTS, "psql"}
OWNERS_WORK = ("pgcourier/migrate", "pgcourier/schedule")

TOO_MIGHTY = """
with owner as (select distinct relowner as oid from pg_class where relkind in ('r', 'p') and relnamespace <> 'pg_catalog'::regnamespace
                                                                 and relnamespace <> 'information_schema'::regnamespace)
select case when r.rolsuper then 'a superuser' else 'who owns a table or may become its owner' end from pg_roles r
 where r.rolname = %s and (r.rolsuper or exists (select from owner o where pg_has_role(r.oid, o.oid, 'member')))"""

_of_closed = []


def _might(server, user, database, name):
    """Why this login is too mighty; None: it is not, or is gone, or the server is down."""
    if user == SUPERUSER:
        return "a superuser"
    rows = []
    with contextlib.suppress(psycopg2.OperationalError):
        rows = server.query(TOO_MIGHTY, (user,), dbname=database)
    return rows[0][0] if rows and not (name in OWNERS_WORK and "owns" in rows[0][0]) else None


def _collect(server):
    """One text for each login since the last call that should not have been."""
    with open(server.log_path, errors="replace") as log:
        log.seek(getattr(server, "logins_read", 0))
        found = [LOGIN.search(line) for line in log.read().splitlines()]
        server.logins_read = log.tell()
    logins = sorted({login.groups(default="") for login in found if login})
    texts = [(user, name, _might(server, user, database, name)) for user, database, name in logins if name not in OURS]
    return [f"{name or 'a program without a name'} logged in as {user}, {why}" for user, name, why in texts if why]


def collect():
    """The same for all servers, those that were closed in between among them."""
    texts = [*_of_closed]
    _of_closed.clear()
    for server in open_servers():
        if isinstance(server, Postgres):
            texts += _collect(server)
    return texts


def _collecting(close):
    @functools.wraps(close)
    def collect_and_close(server):
        with contextlib.suppress(FileNotFoundError):
            _of_closed.extend(_collect(server))
        close(server)

    return collect_and_close


def install():
    """A server that is closed takes its log with it."""
    Postgres.close = _collecting(Postgres.close)


def complaint(mark, offences):
    """What is wrong with a test's logins; None: nothing. `mark`: its superuser mark, or None."""
    if mark and not (mark.args and mark.args[0]):
        return "the mark `superuser` needs a reason"
    if mark and not offences:
        return "nothing here logged in as a superuser: the mark `superuser` is not needed"
    return None if mark else "\n".join(offences) or None
