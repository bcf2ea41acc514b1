"""The query of the article that this system grew out of, as a fixture: it delivers events twice and out of order with no
fault at all, and the check that finds that out finds nothing wrong with a relay on the same events."""

import threading

import pytest

from tests.support.history import Receipt, check
from tests.support.shop import Shop
from tests.support.targets import FileTarget

# Letter by letter; DESIGN.md, "The claim", says what is wrong with it.
ARTICLE_CLAIM = """
select * from events e where order_id = (
    select order_id from events where pg_try_advisory_xact_lock(order_id) order by id desc limit 1)
order by created_at desc limit 1
"""

WORKERS = 12
ORDERS = 200
EVENTS_PER_ORDER = 15


class ArticleWorkers:
    """Workers that select by the article's query, deliver to a list, delete by id and commit, until the table is empty."""

    def __init__(self, db):
        self.db = db
        self.receipts = []
        self._lock = threading.Lock()

    def _work(self):
        connection = self.db.connect(autocommit=False)
        idle = 0
        with connection.cursor() as cursor:
            while idle < 20:  # others may hold every key that is left
                cursor.execute(ARTICLE_CLAIM)
                row = cursor.fetchone()
                if row:
                    with self._lock:
                        self.receipts.append(Receipt(row[0], str(row[1])))
                    cursor.execute("delete from events where id = %s", (row[0],))
                connection.commit()
                idle = 0 if row else idle + 1
        connection.close()

    def run(self):
        threads = [threading.Thread(target=self._work, name=f"worker-{n}") for n in range(WORKERS)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return self.receipts


def fill(shop):
    """The same events every time, one commit for each event: the article's order by created_at meets no ties."""
    keys = [number % ORDERS + 1 for number in range(ORDERS * EVENTS_PER_ORDER)]
    connection = shop.db.connect()
    for key in keys:
        shop.insert([key], connection)
    connection.close()


@pytest.fixture
def shop(db):
    shop = Shop(db, orders=ORDERS)
    fill(shop)
    return shop


def test_the_articles_query_fails_the_check(db, shop):
    verdict = check(shop.journal, ArticleWorkers(db).run(), final=shop.final())
    print(f"{verdict.duplicates} of {len(verdict.receipts)} deliveries were duplicates,"
          f" {sum(violation.kind == 'order' for violation in verdict.violations)} first deliveries out of order")
    assert {"order", "duplicate"} <= verdict.kinds()


def test_a_relay_passes_it_on_the_same_events(shop, relay, tmp_path):
    target = FileTarget(tmp_path / "events.jsonl")
    relays = [relay(shop.config(target.sink(), **target.queue), until_empty=True) for _ in range(4)]
    assert [one.wait() for one in relays] == [0] * 4
    shop.check(target.receipts())
