"""A worker that pulls: it takes events by SQL, delivers them to a list of receipts, and says what became of them.

    worker = Worker(db, "shop")
    taken = worker.take(10)             # rows as Taken
    worker.done(taken[0].token)         # and fail, extend, release: True when the verdict counted
"""

from collections import namedtuple

from tests.support.postgres import WORKER_ROLE

Taken = namedtuple("Taken", "token id key type payload headers traceparent created_at attempt expires_at")


class Worker:
    """With the rights of outbox_worker and no more; every call is a transaction of its own."""

    def __init__(self, db, queue, name="worker"):
        self.queue, self.name = queue, name
        self.connection = db.connect(user=WORKER_ROLE)

    def _rows(self, sql, *parameters):
        with self.connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return cursor.fetchall()

    def _value(self, sql, *parameters):
        return self._rows(sql, *parameters)[0][0]

    def take(self, count=1, lease="1 minute"):
        return [Taken(*row) for row in self._rows("select * from outbox.take(%s, %s, %s, %s::interval)", self.queue, count, self.name, lease)]

    def done(self, token, response=None):
        return self._value("select outbox.done(%s, %s)", token, response)

    def done_all(self, tokens, responses=None):
        return self._value("select outbox.done_all(%s::uuid[], %s::text[])", list(tokens), responses)

    def fail(self, token, error="no", fatal=False):
        return self._value("select outbox.fail(%s, %s, %s)", token, error, fatal)

    def extend(self, token, lease=None):
        return self._value("select outbox.extend(%s, %s::interval)", token, lease)

    def release(self, token):
        return self._value("select outbox.release(%s)", token)

    def close(self):
        self.connection.close()
