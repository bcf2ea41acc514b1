"""Rows that the database does not let go once their events are delivered: only their keys wait, and nothing else is delivered
twice."""

from collections import Counter

import pytest

from tests.support.history import Fault
from tests.support.servers import Reply, run_command, wait_until
from tests.support.shop import Shop
from tests.support.targets import FileTarget, HttpTarget

EVENTS, KEYS = 400, 40
BAD = 165  # of key 5; 205, 245, ... come after it
QUICK = "{ base: 20ms, max: 200ms, attempts: 100000 }"
REFERENCE = "create table public.notes (event_id bigint references public.events (id) {how});" \
            f"insert into public.notes values ({BAD})"
TRIGGER = "create function public.guard() returns trigger language plpgsql as $$ begin {body} return old; end $$;" \
          "create trigger guard before delete on public.events for each row execute function public.guard()"
UNGUARD = "drop trigger guard on public.events"

# What is in the way, what takes it away, what the relay says.
OBSTACLES = {
    "foreign_key": (REFERENCE.format(how=""), "delete from public.notes", "23503"),
    "deferred_foreign_key": (REFERENCE.format(how="deferrable initially deferred"), "delete from public.notes", "23503"),
    "raising_trigger": (TRIGGER.format(body=f"if old.id = {BAD} then raise 'not this one'; end if;"), UNGUARD,
                        "not this one .SQLSTATE P0001"),
    "privilege": (TRIGGER.format(body=f"if old.id = {BAD} then raise insufficient_privilege; end if;"), UNGUARD, "42501"),
    **{f"raised_{state}": (TRIGGER.format(body=f"if old.id = {BAD} then raise sqlstate '{state}'; end if;"), UNGUARD, state)
       for state in ("0A000", "25000", "55000")},
    "keeping_trigger": (TRIGGER.format(body=f"if old.id = {BAD} then return null; end if;"), UNGUARD,
                        f"event {BAD} is still in public.events after DELETE"),
    "archive_constraint": (f"alter table outbox.archive add constraint no check (event_id <> {BAD})",
                           "alter table outbox.archive drop constraint no", "23514"),
}


def only_key_5_is_left(db):
    return db.query("select min(order_id), max(order_id) from public.events") == [(5, 5)]


def stuck(db):
    return db.query("select key, event_id, last_error from outbox.parked")


def waits_and_says_why(db):
    return [(*row[:2], "cannot be taken out of public.events: mend" in row[2]) for row in stuck(db)] == [("5", BAD, True)]


def sent(target):
    """How often each event came, but for the bad one; and how often that did."""
    counts = Counter(receipt.id for receipt in target.receipts())
    bad = counts.pop(BAD, 0)
    return counts, bad


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_a_row_that_cannot_be_deleted_makes_its_key_wait_and_nothing_else(db, relay, tmp_path, obstacle):
    block, unblock, says = OBSTACLES[obstacle]
    shop, target = Shop(db), FileTarget(tmp_path / "out.jsonl")
    shop.add(EVENTS, KEYS)
    db.psql(block)
    config = shop.config(target.sink(sync=False), **target.queue, retry=QUICK,
                         after="archive" if obstacle == "archive_constraint" else "delete")
    relays = [relay(config) for _ in range(2)]

    def logged(pattern):
        return [line for one in relays for line in one.logged(pattern)]

    wait_until(lambda: only_key_5_is_left(db), 60, "all other keys to be settled")
    wait_until(lambda: len(logged(f"event.stuck .*table=public.events event={BAD} key=5 .*{says}")) >= 3, 60,
               "the relays to try again")
    wait_until(lambda: waits_and_says_why(db), 60, "the key to wait")
    shop.add(KEYS, KEYS)
    wait_until(lambda: only_key_5_is_left(db), 60, "what comes later to be settled")
    db.psql(unblock)
    wait_until(lambda: shop.left() == 0 and not stuck(db), 60, "the wait to end")
    assert [one.stop() for one in relays] == [0, 0]
    others, bad = sent(target)
    assert others == Counter(n for n in range(1, EVENTS + KEYS + 1) if n != BAD)
    assert bad >= 3
    assert not logged("claim.lost")
    shop.check(target.receipts(), [Fault("the row stays", 1, ids=[BAD])] * bad, archived=obstacle == "archive_constraint")


@pytest.mark.parametrize("obstacle", ["foreign_key", "keeping_trigger", "raised_0A000"])
def test_a_row_that_cannot_be_deleted_closes_its_key_in_the_end(db, relay, tmp_path, obstacle):
    block, unblock, says = OBSTACLES[obstacle]
    shop, target = Shop(db), FileTarget(tmp_path / "out.jsonl")
    shop.add(EVENTS, KEYS)
    db.psql(block)
    config = shop.config(target.sink(sync=False), **target.queue, retry="{ base: 1ms, max: 10ms, attempts: 3 }")
    one = relay(config, until_empty=True)
    assert one.wait(60) == 0  # a closed key does not count
    others, bad = sent(target)
    assert bad == 3 and set(others.values()) == {1}
    assert db.value("select count(*) from outbox.dead") == 0
    listed = run_command("dead", "list", "-c", one.config_path)
    assert f"{BAD}" in listed.stdout and "its row cannot be taken out of public.events" in listed.stdout
    assert one.logged(f"event.stuck .*event={BAD} .*attempt=3 .*{says}")

    db.psql(unblock + "; grant insert on public.events to outbox_relay")
    assert run_command("dead", "retry", "--all", "-c", one.config_path).returncode == 0
    assert relay(config, until_empty=True).wait(60) == 0
    assert shop.left() == 0 and not stuck(db)
    others, again = sent(target)
    assert again == bad + 1 and others == Counter(n for n in range(1, EVENTS + 1) if n != BAD)


@pytest.mark.parametrize("state", ["08006", "40001", "53100", "53200", "57P01", "58030"])
def test_a_row_that_raises_what_the_server_raises_when_it_lacks_something_waits_alone(db, relay, tmp_path, state):
    """Nor is it blamed, because a full disk is nobody's row."""
    shop, target = Shop(db), FileTarget(tmp_path / "out.jsonl")
    shop.add(EVENTS, KEYS)
    db.psql(TRIGGER.format(body=f"if old.id = {BAD} then raise sqlstate '{state}'; end if;"))
    one = relay(shop.config(target.sink(sync=False), **target.queue, retry=QUICK))
    wait_until(lambda: only_key_5_is_left(db), 60, "all other keys to be settled")
    shop.add(KEYS, KEYS)
    wait_until(lambda: only_key_5_is_left(db), 60, "what comes later to be settled")
    assert not stuck(db)
    db.psql(UNGUARD)
    wait_until(lambda: shop.left() == 0, 60, "the wait to end")
    assert one.stop() == 0


@pytest.mark.parametrize("obstacle", ["raising_trigger", "keeping_trigger"])
def test_a_dead_letter_whose_row_cannot_be_deleted_closes_its_key(db, relay, http, obstacle):
    block, unblock, _ = OBSTACLES[obstacle]
    shop, target = Shop(db), HttpTarget(http)
    shop.add(EVENTS, KEYS)
    db.psql(block)
    http.rule(lambda request: request.headers["event-id"] == str(BAD), Reply(400))
    config = shop.config(target.sink(), retry="{ base: 1ms, max: 10ms, attempts: 3 }")
    one = relay(config, until_empty=True)
    assert one.wait(60) == 0
    assert [row[:2] for row in stuck(db)] == [("5", BAD)]
    others, bad = sent(target)
    assert bad <= 4 and others == Counter(n for n in range(1, EVENTS + 1) if n < BAD or n % KEYS != 5)
    db.psql(unblock + "; grant insert on public.events to outbox_relay")
    assert run_command("dead", "retry", "--all", "-c", one.config_path).returncode == 0
    assert relay(config, until_empty=True).wait(60) == 0
    assert shop.left() == 0 and not stuck(db)
    assert db.query("select event_id from outbox.dead") == [(BAD,)]


def test_of_several_dead_letters_in_one_settlement_the_one_whose_row_stays_is_found(db, relay, http):
    """Here it is none of the outer ones, in whatever order they are written down."""
    shop, target = Shop(db), HttpTarget(http)
    met, outer, kept = 10, (50, 70), 60
    db.psql(TRIGGER.format(body=f"if old.id in ({met}, {kept}) then return null; end if;"))
    http.rule(lambda request: int(request.headers["event-id"]) in (*outer, kept), Reply(400))
    one = relay(shop.config(target.sink(), retry="{ base: 1h, max: 1h, attempts: 3 }", connections=1))
    shop.insert(range(1, KEYS + 1))
    wait_until(lambda: [row[1] for row in stuck(db)] == [met], 60, "the relay to meet the first of them")
    shop.insert(range(KEYS + 1, 2 * KEYS + 1))
    wait_until(lambda: [row[1] for row in stuck(db)] in ([met, kept], [kept, met]), 60, "the relay to find the other")
    wait_until(lambda: shop.left() == 2, 60, "all other keys to be settled")
    assert one.stop() == 0
    assert db.query("select event_id from outbox.dead order by event_id") == [(event_id,) for event_id in outer]
    sent_once = dict.fromkeys(range(1, 2 * KEYS + 1), 1)
    assert Counter(receipt.id for receipt in target.receipts()) == sent_once


@pytest.mark.parametrize("obstacle", ["foreign_key", "deferred_foreign_key"])
def test_a_straggler_and_a_row_that_cannot_be_deleted_in_one_claim(db, relay, http, obstacle):
    """The side connection meets it first, while the claim is still being delivered."""
    shop, target = Shop(db), HttpTarget(http)
    shop.add(EVENTS, KEYS)
    db.psql(OBSTACLES[obstacle][0])
    http.rule(lambda request: request.headers["event-key"] == "7", Reply(delay_s=0.3))
    one = relay(shop.config(target.sink(), retry=QUICK, connections=1))
    wait_until(lambda: only_key_5_is_left(db), 60, "all other keys to be settled")
    db.psql("delete from public.notes")
    wait_until(lambda: shop.left() == 0 and not stuck(db), 60, "the wait to end")
    assert one.stop() == 0
    others, _ = sent(target)
    assert others == Counter(n for n in range(1, EVENTS + 1) if n != BAD)


def test_rows_that_cannot_be_deleted_and_are_alone_do_not_hold_up_what_comes(db, relay, tmp_path):
    shop, target = Shop(db), FileTarget(tmp_path / "out.jsonl")
    shop.add(2, 2)
    db.psql(TRIGGER.format(body="if old.id <= 2 then raise 'not these'; end if;"))
    one = relay(shop.config(target.sink(sync=False), **target.queue, retry=QUICK))
    wait_until(lambda: len(one.logged("settle.failed .*not these")) >= 2, 60, "the relay to try again")
    assert not stuck(db)  # nothing says that other rows would pass
    assert Counter(receipt.id for receipt in target.receipts()) == {1: 1, 2: 1}
    shop.add(KEYS, KEYS)
    wait_until(lambda: db.query("select min(order_id), max(order_id) from public.events") == [(0, 1)], 120,
               "all other keys to be settled")
    wait_until(lambda: len(stuck(db)) == 2, 60, "both keys to wait")
    db.psql(UNGUARD)
    wait_until(lambda: shop.left() == 0 and not stuck(db), 60, "the wait to end")
    assert one.stop() == 0
    counts = Counter(receipt.id for receipt in target.receipts())
    assert min(counts.pop(1), counts.pop(2)) >= 2
    assert counts == Counter(range(3, KEYS + 3))


def test_a_trigger_that_marks_rows_instead_of_deleting_them_is_no_obstacle(db, relay, tmp_path):
    """What the queue's filter leaves out is done with."""
    shop, target = Shop(db), FileTarget(tmp_path / "out.jsonl")
    shop.add(EVENTS, KEYS)
    db.psql("alter table public.events add column gone boolean not null default false")
    db.psql(TRIGGER.format(body="update public.events set gone = true where id = old.id; return null;"))
    db.psql("grant update on public.events to outbox_relay")
    one = relay(shop.config(target.sink(sync=False), **target.queue, retry=QUICK, where="not gone", keys_per_claim=10))
    wait_until(lambda: db.value("select count(*) from public.events where not gone") == 0, 60, "all to be marked")
    assert one.stop() == 0
    assert not stuck(db) and not one.logged("event.stuck")
    assert Counter(receipt.id for receipt in target.receipts()) == Counter(range(1, EVENTS + 1))


def test_a_table_that_refuses_everything_for_a_while_costs_nothing(db, relay, tmp_path):
    """One more key is claimed, to find out; nothing is delivered twice."""
    shop, target = Shop(db), FileTarget(tmp_path / "out.jsonl")
    shop.add(EVENTS, KEYS)
    db.psql(TRIGGER.format(body="raise 'closed for maintenance';"))
    one = relay(shop.config(target.sink(sync=False), **target.queue, retry=QUICK, keys_per_claim=10))
    wait_until(lambda: len(one.logged("settle.failed .*closed for maintenance")) >= 4, 60, "the relay to try again")
    assert not stuck(db)
    db.psql(UNGUARD)
    wait_until(lambda: shop.left() == 0, 60, "the table to be empty")
    assert one.stop() == 0
    shop.check(target.receipts())
