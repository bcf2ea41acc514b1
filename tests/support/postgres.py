"""A private PostgreSQL cluster."""

import atexit
import functools
import glob
import itertools
import os
import secrets
import shutil
import signal
import subprocess
import tempfile

import psycopg2

from tests.support import postgres_release
from tests.support.kept import SETS, KeptConnections, is_plain
from tests.support.process import Process, Server, ServerError, as_user, find_program, free_port, unprivileged_user

# Throwaway data: nothing here is about surviving a power cut. A bench passes durable=True.
FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
COMMON = {"max_connections": "100", "shared_buffers": "128MB", "log_min_messages": "warning",
          "log_line_prefix": "'%m [%p] %a '", "max_wal_size": "2GB", "jit": "off",
          "log_connections": "on"}  # read by tests/support/privileges.py

# Who logs in. A program under test gets the least that the documentation names for it; only the tests themselves, and
# tests with the mark `superuser`, are SUPERUSER. See tests/support/privileges.py.
SUPERUSER = "postgres"
OWNER_ROLE = "shop_owner"  # runs `migrate`, and so owns the schema outbox
RELAY_ROLE = "shop_courier"  # a relay: a member of outbox_relay and nothing more
OPERATOR_ROLE = "shop_operator"  # a person who runs `dead retry`, which puts rows back
REPLAY_ROLE = "shop_replayer"  # who runs `replay`: a member of outbox_operator and nothing more
PRODUCER_ROLE = "shop_producer"  # a service, and `publish`: a member of outbox_writer and nothing more
WORKER_ROLE = "shop_worker"  # takes events by SQL: a member of outbox_worker and nothing more
# The application_name of the tests' own sessions. Nothing under test can know it, and so pass for one of them.
TESTS = f"tests-{secrets.token_hex(8)}"

LOGINS = {RELAY_ROLE: "outbox_relay", OPERATOR_ROLE: "outbox_relay, outbox_writer", PRODUCER_ROLE: "outbox_writer",
          WORKER_ROLE: "outbox_worker", REPLAY_ROLE: "outbox_operator"}

# Roles belong to the whole cluster, so another database may have made them.
CREATE_ROLE = """
do $$ begin
    create role {role} login {options};
exception when duplicate_object or unique_violation then null;
end $$;
"""

STOP_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}


def bin_folders(release=None):
    """Where the server programs are, newest release first: Debian keeps them out of PATH. Of a release that is named: those
    of that one."""
    if release:
        return [postgres_release.bin_folder(release)]
    folders = glob.glob("/usr/lib/postgresql/*/bin")
    return sorted(folders, key=lambda path: int(path.split("/")[4]), reverse=True)


def run_as(user, *command):
    done = subprocess.run(as_user(command, user), cwd="/", capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServerError(f"{os.path.basename(command[0])} failed\n{done.stdout}{done.stderr}")


@functools.cache
def new_cluster(encoding, release=None):
    """A cluster that no server has run on, made once: a copy of it is there in a tenth of the time."""
    user = unprivileged_user()
    folder = tempfile.mkdtemp(prefix="pgcourier-initdb-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if user:
        shutil.chown(folder, user)
    data = os.path.join(folder, "data")
    run_as(user, find_program("initdb", *bin_folders(release)), "--no-sync", "-A", "trust", "-U", SUPERUSER, "-E", encoding,
           "--locale=C", "-D", data)
    return data


class Postgres(Server):
    """Postgres(settings={"wal_level": "logical"}, encoding="SQL_ASCII") -> a started-on-enter cluster; release=17 is one of that
    major release, else it is of the newest that is installed.

    The superuser is `postgres`, without a password, over TCP on 127.0.0.1 and a socket in .folder."""

    name = "postgres"
    stop_signal = signal.SIGINT  # "fast"; a parent's death is "immediate": it still removes the shared memory

    def __init__(self, settings=None, encoding="UTF8", durable=False, release=None):
        self.user = unprivileged_user()
        self.release = release
        super().__init__()
        self.port = free_port()
        self.data = os.path.join(self.folder, "data")
        self.settings = {**COMMON, **({} if durable else FAST), **(settings or {})}
        self._names = itertools.count(1)
        self._has_roles = False
        self._kept = KeptConnections(self.connect)
        self._initdb(encoding)

    def _initdb(self, encoding):
        run_as(self.user, "cp", "-R", "-p", new_cluster(encoding, self.release), self.data)

    def _launch(self):
        self._has_roles = False  # a crash may have lost them: nothing waits for the disk
        settings = {"listen_addresses": "127.0.0.1", "port": self.port, **self.settings}
        # A socket path has room for 107 bytes; in a deeper folder TCP alone must do.
        settings["unix_socket_directories"] = self.folder if len(self.folder) < 90 else ""
        options = [part for item in settings.items() for part in ("-c", "{}={}".format(*item).replace("'", ""))]
        command = [find_program("postgres", *bin_folders(self.release)), "-D", self.data, *options]
        return Process(command, self.log_path, user=self.user, death_signal="QUIT")

    def _answers(self):
        try:
            self.connect().close()
            return True
        except psycopg2.OperationalError:
            return False

    def dsn(self, dbname="postgres", user=RELAY_ROLE, **parameters):
        """A libpq connection string; see let_relay_in() for who that user is."""
        parts = {"host": "127.0.0.1", "port": self.port, "dbname": dbname, "user": user, **parameters}
        return " ".join(f"{name}={value}" for name, value in parts.items())

    def superuser_dsn(self, dbname="postgres", **parameters):
        """For the tests' own programs; what is under test may use it in a test with the mark `superuser` only."""
        return self.dsn(dbname, SUPERUSER, **parameters)

    def connect(self, dbname="postgres", user=SUPERUSER, autocommit=True, **parameters):
        """A psycopg2 connection; autocommit unless told otherwise."""
        connection = psycopg2.connect(self.dsn(dbname, user, **{"application_name": TESTS, **parameters}), connect_timeout=10)
        connection.autocommit = autocommit
        return connection

    def query(self, sql, parameters=None, dbname="postgres"):
        """Runs one statement and returns its rows, [] when it has none; but for a plain read in a session of its own."""
        assert not sql.lower().startswith("select from"), "rows without a column cannot be told from none"
        if is_plain(sql):
            return self._kept.rows(dbname, sql, parameters)
        if SETS.search(sql):
            self._kept.close()
        connection = self.connect(dbname)
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql, parameters)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def psql(self, sql, dbname="postgres", check=True):
        """Runs a script through psql -X, unaligned and without headers, and returns its output."""
        command = [find_program("psql", *bin_folders()), "-XqAt", "-v", "ON_ERROR_STOP=1",
                   "-d", self.superuser_dsn(dbname, application_name=TESTS), "-f", "-"]
        done = subprocess.run(command, input=sql, capture_output=True, text=True, check=False)
        if check and done.returncode != 0:
            raise ServerError(f"psql failed: {done.stderr}")
        return done.stdout

    def stop(self, mode="fast"):
        """mode: smart, fast or immediate (as if it had crashed)."""
        self._kept.close()  # for which "smart" would wait
        if self.process:
            self.process.end(STOP_SIGNALS[mode], self.stop_timeout_s)

    def kill(self):
        """A crash. Not SIGKILL: that would leave the shared memory behind for good."""
        self.stop("immediate")

    def restart(self, mode="fast"):
        self.stop(mode)
        self.start()

    def forget(self, dbname):
        """Closes the connections that plain reads of the database have left open."""
        self._kept.close(dbname)

    def create_database(self, template="template1", name=None):
        """Creates a database and returns a Database."""
        name = name or f"test_{next(self._names)}"
        self.forget(template)
        connection = self.connect()
        try:
            # Half of wal_log's time, where there is a choice.
            strategy = "STRATEGY file_copy" if connection.server_version >= 150000 else ""
            with connection.cursor() as cursor:
                cursor.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" {strategy}')
                if not self._has_roles:
                    cursor.execute("".join(CREATE_ROLE.format(role=role, options="createrole" if role == OWNER_ROLE else "")
                                           for role in (*LOGINS, OWNER_ROLE)))
                    self._has_roles = True
                cursor.execute(f'grant create on database "{name}" to {OWNER_ROLE}')
        finally:
            connection.close()
        return Database(self, name)


class Standby(Postgres):
    """Standby(primary) -> a started-on-enter hot standby, `standby` in the primary's pg_stat_replication."""

    def __init__(self, primary, settings=None):
        self.primary = primary
        super().__init__(settings)

    def _initdb(self, encoding):
        run_as(self.user, find_program("pg_basebackup", *bin_folders()), "-D", self.data, "-R", "-c", "fast", "-X", "stream",
               "-d", self.primary.superuser_dsn(application_name="standby"))


class Database:
    """One database of a cluster."""

    def __init__(self, server, name):
        self.server = server
        self.name = name

    @property
    def dsn(self):
        """As a login that has the rights of a relay only; see let_relay_in()."""
        return self.server.dsn(self.name)

    @property
    def owner_dsn(self):
        """As the login that runs `pgcourier migrate`: it may create schemas here, and roles."""
        return self.server.dsn(self.name, OWNER_ROLE)

    @property
    def operator_dsn(self):
        """As a login that may put dead letters back; see let_operator_in()."""
        return self.server.dsn(self.name, OPERATOR_ROLE)

    @property
    def producer_dsn(self):
        """As a login that may insert events into outbox.events."""
        return self.server.dsn(self.name, PRODUCER_ROLE)

    @property
    def worker_dsn(self):
        """As a login that may take events and say what became of them, by functions alone."""
        return self.server.dsn(self.name, WORKER_ROLE)

    @property
    def replay_dsn(self):
        """As a login that may have archived and dead events sent again."""
        return self.server.dsn(self.name, REPLAY_ROLE)

    @property
    def superuser_dsn(self):
        return self.server.superuser_dsn(self.name)

    def create_logins(self):
        """Gives the logins the group roles that they are named for. Called once migrated."""
        self.query("".join(f"grant {groups} to {role};" for role, groups in LOGINS.items()))

    def let_relay_in(self, *tables):
        """Lets the login of dsn serve these tables, with the statement of docs/existing-table.md."""
        self.query("".join(f"select outbox.grant_relay('{table}');" for table in tables))

    def let_hand_on(self, *tables):
        """Lets the login of dsn put what it has delivered into them, with the statements of docs/stages.md."""
        self.query("".join(f"grant insert on {table} to {RELAY_ROLE}; grant usage on sequence {table}_id_seq to {RELAY_ROLE};"
                           for table in tables))

    def let_operator_in(self, *tables):
        """Lets the login of operator_dsn put rows back into them, and run what a relay's may."""
        self.let_relay_in(*tables)
        self.query("".join(f"grant insert on {table} to {OPERATOR_ROLE};" for table in tables))

    def connect(self, **parameters):
        return self.server.connect(self.name, **parameters)

    def query(self, sql, parameters=None):
        return self.server.query(sql, parameters, self.name)

    def value(self, sql, parameters=None):
        """The first column of the first row."""
        return self.query(sql, parameters)[0][0]

    def psql(self, sql, check=True):
        return self.server.psql(sql, self.name, check)

    def vacuum(self, table):
        """What it says of it."""
        connection = self.connect()
        try:
            connection.cursor().execute(f"vacuum (verbose) {table}")
            return "".join(connection.notices)
        finally:
            connection.close()

    def drop(self):
        self.server.forget(self.name)
        self.server.query(f'DROP DATABASE IF EXISTS "{self.name}" WITH (FORCE)')
