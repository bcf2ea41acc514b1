"""The shop's journal tells the truth about commits, whatever becomes of the connection, and the history check uses it."""

import psycopg2
import pytest

from tests.support.history import Receipt
from tests.support.journal import digest
from tests.support.shop import Shop
from tests.support.targets import FileTarget
from tests.support.verdict import HistoryError

# The session dies in its COMMIT; the client learns no more than that.
DIE_IN_COMMIT = """
create function public.die() returns trigger language plpgsql as $$ begin perform pg_terminate_backend(pg_backend_pid()); return null; end $$;
create constraint trigger die after insert on public.events deferrable initially deferred for each row execute function public.die();
"""


@pytest.fixture
def shop(db):
    return Shop(db, orders=10)


def outcomes(shop):
    return [event.commit for event in {event.id: event for event in shop.journal}.values()]


def test_a_commit_without_a_reply_is_unknown_and_the_check_accepts_both_ends(shop, relay, tmp_path):
    shop.insert([1, 2])
    shop.db.psql(DIE_IN_COMMIT)
    with pytest.raises(psycopg2.OperationalError):
        shop.insert([1, 2])
    shop.db.query("drop trigger die on public.events")
    assert outcomes(shop) == ["yes", "yes", "unknown", "unknown"]
    target = FileTarget(tmp_path / "out")
    assert relay(shop.config(target.sink(), **target.queue), until_empty=True).wait() == 0
    assert shop.check(target.receipts()).counts["produced"] == 2
    unknown = shop.journal[-2:]
    assert shop.check([*target.receipts(), *(Receipt(event.id, event.key) for event in unknown)]).counts["produced"] == 4


def test_what_was_rolled_back_must_not_be_delivered(shop):
    (gone,) = shop.insert([1], commit=False)
    assert outcomes(shop) == ["no"] and shop.left() == 0
    shop.check([])
    with pytest.raises(HistoryError, match="phantom .* rolled back"):
        shop.check([Receipt(gone.id, gone.key)])


def test_the_journal_has_the_digests_of_the_payloads(shop):
    shop.insert([1, None, 2])
    shop.add(20, keys=3)
    payloads = dict(shop.db.query("select id, payload from public.events"))
    assert all(b"\0" in bytes(payload) for payload in payloads.values())
    assert {event.id: event.hash for event in shop.committed} == {each: digest(bytes(payload)) for each, payload in payloads.items()}
