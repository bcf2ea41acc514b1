"""The statements that are executed in a database, from the server's log: pg_stat_activity shows each until the next one only."""

import os

from tests.support.process import wait_until


class StatementLog:
    """StatementLog(db).text() -> what whoever connects from now on has executed."""

    def __init__(self, db):
        db.query(f"alter database {db.name} set log_statement = 'all'")
        self._path = db.server.log_path
        self.forget()

    def forget(self):
        """text() begins here."""
        self._begin = os.path.getsize(self._path)

    def text(self):
        with open(self._path, errors="replace") as log:
            log.seek(self._begin)
            return log.read()

    def wait_for_probes(self, count):
        """So many questions of how far the ids go are answered: the first says that they are settled, and the next that they
        are gone."""
        wait_until(lambda: self.text().count("as holder") > count, 60, f"{count} probes")
