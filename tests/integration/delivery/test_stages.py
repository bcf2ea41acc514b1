"""A queue that hands on what was delivered (`then`): each event goes on exactly once and in order, whatever happens meanwhile."""

import random

import pytest

from tests.support.history import Event, Final, Receipt, check
from tests.support.postgres import RELAY_ROLE
from tests.support.servers import Reply, run_command, wait_until

CONFIG = """
database: "{db}"
sinks: {{ web: {{ type: http, url: "{url}" }}, none: {{ type: discard }} }}
queues:
  first: {{ table: public.first, columns: {{ key: k, payload: body }}, sink: web, then: second{first} }}
  second: {{ table: public.second, columns: {{ key: k, payload: body }}, sink: none{second} }}
"""
KEYS, EVENTS, KILLS = 40, 1200, 6


@pytest.fixture
def stages(db, http, relay):
    db.psql("".join(f"create table public.{name} (id bigserial primary key, k text, body jsonb); create index on public.{name} (k, id);"
                    for name in ("first", "second")))
    db.let_relay_in("public.first", "public.second")
    db.let_hand_on("public.second")

    def start(first="", second="", until_empty=False):
        return relay(CONFIG.format(db=db.dsn, url=http.url, first=first, second=second), until_empty=until_empty)

    return start


def produce(db, count=EVENTS):
    """Events that know their own ids."""
    db.query("insert into public.first (id, k, body) select n, 'k' || n %% %s, jsonb_build_object('of', n) from"
             " (select nextval('public.first_id_seq') as n from generate_series(1, %s)) e", [KEYS, count])


def handed_on(db):
    return [Receipt(of, key, "ack") for of, key in db.query("select (body ->> 'of')::bigint, k from public.second order by id")]


def judge(db, count=EVENTS):
    """What is in the second table came from the first: each event once, in order within its key, and no dead letter."""
    dead = {row[0] for row in db.query("select event_id from outbox.dead where queue = 'first'")}
    events = [Event(n, f"k{n % KEYS}") for n in range(1, count + 1) if n not in dead]
    return check(events, handed_on(db), final=Final([row[0] for row in db.query("select id from public.first")]))


@pytest.mark.parametrize("after", ["delete", "archive"])
def test_each_event_goes_on_once_and_in_order_though_relays_are_killed(db, http, stages, after):
    rng = random.Random(11)

    def respond(request):
        n = int(request.headers["event-id"])
        if n % 97 == 0:
            return Reply(400)
        return Reply(200 if rng.random() > 0.05 else 500, delay_s=0.2 if rng.random() < 0.01 else 0)

    http.respond = respond
    db.query("select outbox.pause('second', is_new => true)")
    produce(db)
    first = f", after: {after}, retry: {{ base: 10ms, max: 50ms, attempts: 100 }}, keys_per_claim: 8, max_events_per_key: 4"
    for kill in range(KILLS):
        one, other = stages(first), stages(first)
        seen = len(http.requests)
        wait_until(lambda: len(http.requests) > seen + 60)
        db.query("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pgcourier'"
                 " and datname = current_database() and pid %% 3 = %s", [kill % 3])
        one.kill()
        other.kill()
    last = stages(first, until_empty=True)
    assert last.wait(120) == 0
    judge(db).require()
    assert db.value("select count(*) from public.second") == EVENTS - EVENTS // 97
    assert len(http.requests) > EVENTS  # something was repeated
    if after == "archive":
        assert db.value("select count(*) from outbox.archive where queue = 'first'") == EVENTS - EVENTS // 97


def test_all_stages_are_empty_when_a_relay_says_so(db, http, stages):
    produce(db, 300)
    one = stages(until_empty=True)
    assert one.wait() == 0
    assert db.value("select (select count(*) from public.first) + (select count(*) from public.second)") == 0


def test_the_next_stage_is_woken_and_does_not_wait_for_its_poll(db, stages):
    one = stages(second=", poll: { max: 10m }")
    for _ in range(3):
        produce(db, 1)
        wait_until(lambda: db.value("select (select count(*) from public.first) + (select count(*) from public.second)") == 0, 20)
    assert one.stop() == 0


def test_an_event_that_somebody_else_settles_at_the_same_moment_goes_on_once(db, http, stages):
    """As a relay that has lost its claim does: its rows are locked when the one that claims the key next settles them."""
    db.query("select outbox.pause('second', is_new => true)")
    other = db.connect(autocommit=False)

    def settle(request):
        other.cursor().execute("with gone as (delete from public.first where id = 1 returning k, body)"
                               " insert into public.second (k, body) select k, body from gone")
        return Reply(200)

    http.rule(lambda request: request.headers["event-id"] == "1", settle, times=1)
    produce(db, 2)
    one = stages()
    wait_until(lambda: db.value("select count(*) > 0 from pg_stat_activity where application_name = 'pgcourier'"
                                " and datname = current_database() and wait_event_type = 'Lock'"), what="the relay to wait for the row")
    other.commit()
    other.close()
    wait_until(lambda: db.value("select count(*) from public.first") == 0)
    assert one.stop() == 0
    assert sorted(receipt.id for receipt in handed_on(db)) == [1, 2]


def test_an_event_that_a_trigger_keeps_does_not_go_on(db, stages):
    db.psql("create function public.keep() returns trigger language plpgsql as $$ begin return null; end $$;"
            "create trigger keep before delete on public.first for each row when (old.k = 'k1') execute function public.keep()")
    db.query("select outbox.pause('second', is_new => true)")
    produce(db, 5)
    one = stages()
    wait_until(lambda: db.value("select count(*) from public.first") == 1 and db.value("select count(*) from public.second") == 4)
    wait_until(lambda: one.logged("still in public.first"))
    one.stop()
    assert [receipt.id for receipt in handed_on(db)] == [2, 3, 4, 5]


MISFITS = {
    "column": ("alter table public.second add must int not null", 78, "error: column \"must\" of public.second must not be null, has no default"),
    "type": ("alter table public.second alter body type int using 0", 78, "column \"body\" of public.second is of type integer and cannot serve as payload"),
    "payload": ("alter table public.first alter body type text", 78, "error: FILE:5:3: what goes on to queue \"second\" does not fit"
                " public.second: "),
    "right": (f"revoke insert on public.second from {RELAY_ROLE}", 77, "has no INSERT on public.second  fix: grant insert on"
              f" public.second to {RELAY_ROLE};"),
    "sequence": (f"revoke usage on sequence public.second_id_seq from {RELAY_ROLE}", 77, "has no USAGE on sequence public.second_id_seq,"
                 f" from which public.second draws  fix: grant usage on sequence public.second_id_seq to {RELAY_ROLE};"),
    "nothing": ("", 0, ""),
}


@pytest.mark.parametrize("name", MISFITS)
def test_what_does_not_fit_is_told_before_it_is_refused(db, stages, tmp_path, name):
    setup, code, text = MISFITS[name]
    db.psql(setup)
    path = tmp_path / "pgcourier.yaml"
    path.write_text(CONFIG.format(db=db.dsn, url="http://localhost", first="", second=""))
    done = run_command("check-config", "-c", str(path), "--database")
    assert done.returncode == code, done
    assert text in done.stdout.replace(str(path), "FILE"), done.stdout


def test_an_event_that_the_next_table_refuses_stays_and_others_go_on(db, stages):
    db.psql("alter table public.second add check (body ->> 'of' <> '3')")
    db.query("select outbox.pause('second', is_new => true)")
    produce(db, 6)
    one = stages()
    wait_until(lambda: db.value("select count(*) from public.second") == 5)
    wait_until(lambda: db.value("select count(*) from outbox.parked where queue = 'first' and last_error like '%%second_body_check%%'") == 1)
    db.psql("alter table public.second drop constraint second_body_check")
    db.query("update outbox.parked set next_at = now() where next_at <> 'infinity'")
    wait_until(lambda: db.value("select count(*) from public.second") == 6)
    assert one.stop() == 0


@pytest.mark.parametrize("after", ["delete", "archive"])
def test_an_event_that_a_trigger_keeps_out_of_the_next_table_stays_and_others_go_on(db, stages, after):
    db.psql("create function public.refuse() returns trigger language plpgsql as $$ begin return null; end $$;"
            "create trigger refuse before insert on public.second for each row when (new.body ->> 'of' = '3') execute function public.refuse()")
    db.query("select outbox.pause('second', is_new => true)")
    produce(db, 6)
    one = stages(first=f", after: {after}")
    wait_until(lambda: db.value("select count(*) from public.second") == 5)
    wait_until(lambda: one.logged("1 of 1 rows did not go into public.second: a trigger keeps them out"))
    wait_until(lambda: db.query("select id from public.first") == [(3,)])
    assert db.value("select count(*) from outbox.archive") == (5 if after == "archive" else 0)
    db.psql("drop trigger refuse on public.second")
    db.query("update outbox.parked set next_at = now() where next_at <> 'infinity'")
    wait_until(lambda: db.value("select count(*) from public.first") == 0)
    assert one.stop() == 0
    assert sorted(receipt.id for receipt in handed_on(db)) == [1, 2, 3, 4, 5, 6]
