"""Where a relay looks for events: also below ids that it has passed."""

from contextlib import closing

import pytest

from tests.support.process import wait_until

CONFIG = """
database: "{dsn}"
sinks: {{ none: {{ type: discard }} }}
queues:
  orders: {{ sink: none, ordering: {ordering} }}
"""
PUT = "insert into outbox.events (aggregateid, type) select 'k' || n, 't' from generate_series(1, %s) n"

each_ordering = pytest.mark.parametrize("ordering", ["per_key", "unordered, locks: advisory", "lease"])


def begin(db, events):
    connection = db.connect(autocommit=False)
    connection.cursor().execute(PUT, (events,))
    return closing(connection)


def put_and_wait(db):
    db.query(PUT, (1,))
    wait_until(lambda: db.value("select count(*) from outbox.events") == 0, 20, "what is committed to be delivered")


@each_ordering
def test_what_is_committed_late_does_not_wait_for_a_transaction_that_is_older(db, relay, ordering):
    """They are more than each claim looks at again."""
    with begin(db, 1), begin(db, 20000) as late:
        one = relay(CONFIG.format(dsn=db.dsn, ordering=ordering))
        for _ in range(10):
            put_and_wait(db)
        late.commit()
        wait_until(lambda: db.value("select count(*) from outbox.events") == 0, 20, "them to be delivered")
        assert one.stop() == 0


@each_ordering
def test_an_id_far_above_the_others_does_not_hide_them(db, relay, ordering):
    with begin(db, 1):
        one = relay(CONFIG.format(dsn=db.dsn, ordering=ordering))
        db.query("insert into outbox.events (id, aggregateid, type) overriding system value values (9000000000000000000, 'far', 't')")
        for _ in range(5):
            put_and_wait(db)
        assert one.stop() == 0
