"""PgBouncer in front of a Postgres."""

import os
import signal

import psycopg2

from tests.support.postgres import RELAY_ROLE, SUPERUSER
from tests.support.process import Process, Server, find_program, free_port, unprivileged_user

CONFIG = """\
[databases]
* = host=127.0.0.1 port={server_port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {pool_mode}
default_pool_size = 50
max_client_conn = 500
admin_users = {admin}
{extra}
"""


class PgBouncer(Server):
    """PgBouncer(pg) pools by transaction; the database named in the DSN is the one behind it, as `user`."""

    name = "pgbouncer"
    stop_signal = signal.SIGTERM

    def __init__(self, postgres, pool_mode="transaction", settings=None, user=RELAY_ROLE):
        self.user = unprivileged_user()
        super().__init__()
        self.port = free_port()
        self.config = os.path.join(self.folder, "pgbouncer.ini")
        extra = "\n".join(f"{name} = {value}" for name, value in (settings or {}).items())
        # auth_type any forwards as the user named in [databases], whoever asks.
        text = CONFIG.format(server_port=f"{postgres.port} user={user}", port=self.port, pool_mode=pool_mode,
                             admin=SUPERUSER, extra=extra)
        with open(self.config, "w") as file:
            file.write(text)

    def dsn(self, dbname="postgres", user=RELAY_ROLE):
        return f"host=127.0.0.1 port={self.port} dbname={dbname} user={user}"

    def tell(self, command):
        """"pause" waits for transactions to end, closes the servers' connections and keeps the clients'; "resume" ends that."""
        console = psycopg2.connect(self.dsn("pgbouncer", SUPERUSER))
        console.autocommit = True
        console.cursor().execute(command)
        console.close()

    def _launch(self):
        return Process([find_program("pgbouncer"), self.config], self.log_path, user=self.user)

    def _answers(self):
        try:
            psycopg2.connect(self.dsn(), connect_timeout=2).close()
            return True
        except psycopg2.OperationalError:
            return False
