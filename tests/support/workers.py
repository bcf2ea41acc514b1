"""A worker that pulls: it takes events by SQL, delivers them to a list of receipts, and says what became of them.

    worker = Worker(db, "shop")
    taken = worker.take(10)             # rows as Taken
    worker.done(taken[0].token)         # and fail, extend, release: True when the verdict counted
    worker.receipts                     # what it has worked on, for the history check
"""

import time
from collections import namedtuple

from tests.support.history import Receipt
from tests.support.postgres import OWNER_ROLE, WORKER_ROLE

Taken = namedtuple("Taken", "token id key type payload headers traceparent created_at attempt expires_at")


class Worker:
    """With the rights of outbox_worker and no more; every call is a transaction of its own."""

    def __init__(self, db, queue, name="worker"):
        self.queue, self.name = queue, name
        self.connection = db.connect(user=WORKER_ROLE)
        self.receipts = []
        self._taken = {}  # token -> (event, when)

    def _rows(self, sql, *parameters):
        with self.connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return cursor.fetchall()

    def _value(self, sql, *parameters):
        return self._rows(sql, *parameters)[0][0]

    def take(self, count=1, lease="1 minute"):
        taken = [Taken(*row) for row in self._rows("select * from outbox.take(%s, %s, %s, %s::interval)", self.queue, count, self.name, lease)]
        self._taken.update((event.token, (event, time.monotonic())) for event in taken)
        return taken

    def done(self, token, response=None):
        self._note(token, "ack")
        return self._value("select outbox.done(%s, %s)", token, response)

    def done_all(self, tokens, responses=None):
        tokens = list(tokens)
        for token in tokens:
            self._note(token, "ack")
        return self._value("select outbox.done_all(%s::uuid[], %s::text[])", tokens, responses)

    def fail(self, token, error="no", fatal=False):
        self._note(token, "reject" if fatal else "refuse")
        return self._value("select outbox.fail(%s, %s, %s)", token, error, fatal)

    def extend(self, token, lease=None):
        return self._value("select outbox.extend(%s, %s::interval)", token, lease)

    def release(self, token):
        return self._value("select outbox.release(%s)", token)

    def _note(self, token, answer):
        """It has worked on the event since it was taken, whether or not its verdict counts."""
        if token in self._taken:
            event, at = self._taken.pop(token)
            self.receipts.append(Receipt(event.id, event.key, answer, self.name, event.attempt, None, at, time.monotonic()))

    def close(self):
        self.connection.close()


def owner(db, sql):
    """As the owner of the schema, whose rights take() and the verdicts have."""
    db.query(f"set role {OWNER_ROLE}; {sql}")


def add(db, *keys):
    """An event of each key in outbox.events; their ids."""
    return [db.value("insert into outbox.events (aggregateid, payload) values (%s, '{}') returning id", (key,)) for key in keys]


def left(db):
    """The ids of the events that are still there."""
    return [row[0] for row in db.query("select id from outbox.events order by id")]
