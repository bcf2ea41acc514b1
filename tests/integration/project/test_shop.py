"""The shop's journal tells the truth about commits, whatever becomes of the connection, and the history check uses it."""

import psycopg2
import pytest

from tests.support.history import Receipt
from tests.support.journal import digest
from tests.support.postgres import RELAY_ROLE
from tests.support.process import wait_until
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


def test_a_relay_needs_no_more_than_its_role(shop, relay, tmp_path):
    """What every test with a shop is proof of, as its relays have no other rights."""
    target = FileTarget(tmp_path / "out")
    shop.insert([1, 2])
    running = relay(shop.config(target.sink(), **target.queue))
    wait_until(lambda: shop.left() == 0, 30, "the events to be delivered")
    logins = shop.db.query("select distinct usename from pg_stat_activity where application_name = 'pgcourier' and datname = current_database()")
    assert logins == [(RELAY_ROLE,)]
    assert running.stop() == 0
    assert shop.db.query("select r.rolname from pg_auth_members m join pg_roles r on r.oid = m.roleid where m.member = %s::regrole",
                         (RELAY_ROLE,)) == [("outbox_relay",)]
    flags = "rolsuper or rolcreaterole or rolcreatedb or rolreplication or rolbypassrls"
    assert shop.db.query(f"select rolname from pg_roles where ({flags}) and rolname in (%s, 'outbox_relay')", (RELAY_ROLE,)) == []
