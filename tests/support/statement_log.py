"""The statements that are executed in a database, from the server's log: pg_stat_activity shows each until the next one only."""

import collections
import os
import re

from tests.support.process import wait_until

# As log_line_prefix of tests/support/postgres.py has it. The lines of a statement begin with a tab, but for its first.
STATEMENT = re.compile(r"^\S+ \S+ \S+ \[(?P<pid>\d+)\] (?P<name>.*?) LOG:  (?:statement|execute [^:]+): (?P<text>.*(?:\n\t.*)*)",
                       re.MULTILINE)
COMMENT = re.compile(r"--.*")


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

    def sessions(self, name):
        """{process: its statements, in order and without comments}, of sessions with that application_name."""
        found = collections.defaultdict(list)
        for statement in STATEMENT.finditer(self.text()):
            if statement["name"] == name:
                found[int(statement["pid"])].append(COMMENT.sub("", statement["text"]).strip())
        return found

    def wait_for_probes(self, count):
        """So many questions of how far the ids go are answered: the first says that they are settled, and the next that they
        are gone."""
        wait_until(lambda: self.text().count("as holder") > count, 60, f"{count} probes")
