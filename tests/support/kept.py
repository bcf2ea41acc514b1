"""Connections for plain reads, kept open: a new one for each costs PostgreSQL a process, and a test that polls makes hundreds.

What might find something of the session that an earlier read has left, or leave something, is no plain read."""

import collections
import contextlib
import re
import select

import psycopg2

PLAIN = re.compile(r"\s*(select|show)\b", re.IGNORECASE)
# A second statement; locks and settings of the session; sleeps; functions of ours, which write; what a session knows of
# itself; sequences and signals; and what PostgreSQL counts, to which a session adds its own only once in a while.
NOT_PLAIN = re.compile(r";|advisory|set_config|pg_sleep|outbox\.\w+\s*\(|pg_backend_pid|current_setting|for update|lo_\w+\(|nextval|setval"
                       r"|currval|pg_terminate|pg_cancel|pg_reload|pg_notify|pg_switch_wal|xact_id|txid_"
                       r"|pg_stat(?!_activity|_replication)", re.IGNORECASE)
# New sessions only heed it.
SETS = re.compile(r"\balter\s+(role|user|database|system)\b|\breload_conf\b|pg_stat(?!_activity|_replication)", re.IGNORECASE)


def is_plain(sql):
    return bool(PLAIN.match(sql)) and not NOT_PLAIN.search(sql)


def _is_alive(connection):
    """Nothing is on its way from the server, which has nothing to say but that it is leaving."""
    return not connection.closed and not select.select([connection], [], [], 0)[0]


class KeptConnections:
    """connect(dbname) makes a new one, in autocommit mode. A thread that reads has a connection to itself meanwhile."""

    def __init__(self, connect):
        self._connect = connect
        self._idle = collections.defaultdict(list)

    def _take(self, dbname):
        """A kept one that is alive, or None."""
        with contextlib.suppress(IndexError):
            while True:
                connection = self._idle[dbname].pop()
                if _is_alive(connection):
                    return connection
                connection.close()
        return None

    def rows(self, dbname, sql, parameters):
        connection = self._take(dbname)
        if connection:
            with contextlib.suppress(psycopg2.OperationalError, psycopg2.InterfaceError):  # it has died just now
                return self._rows_of(connection, dbname, sql, parameters)
        return self._rows_of(self._connect(dbname), dbname, sql, parameters)

    def _rows_of(self, connection, dbname, sql, parameters):
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql, parameters)
                rows = cursor.fetchall()
        except BaseException:
            connection.close()
            raise
        self._idle[dbname].append(connection)
        return rows

    def close(self, dbname=None):
        """Those to one database, or all. What a thread reads from goes back and is closed with the next."""
        for name in [dbname] if dbname else list(self._idle):
            with contextlib.suppress(IndexError):
                while True:
                    self._idle[name].pop().close()
