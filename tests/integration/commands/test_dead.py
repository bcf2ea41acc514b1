"""pgcourier dead: what was given up comes back as it was, in order, and running relays are told."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.journal import read_lines
from tests.support.servers import run_command, wait_until

CONFIG = """
database: "{dsn}"
sinks:
  none: {{ type: discard }}
queues:
  orders:
    table: public.events
    columns: {{ id: id, {key} type: status }}
    sink: none
"""

ARTICLE = "create table public.events (id bigserial primary key, order_id bigint, status text not null, created_at timestamptz not null default now())"


@pytest.fixture
def shop(db, tmp_path):
    return Shop(db, tmp_path)


class Shop:
    """One queue over public.events, and what a relay would have left behind."""

    def __init__(self, db, folder):
        self.db = db
        self.path = folder / "pgcourier.yaml"
        self.create(ARTICLE)

    def create(self, table, key="key: order_id,"):
        self.db.query("drop table if exists public.events")
        self.db.query(table)
        self.db.let_operator_in("public.events")
        self.path.write_text(CONFIG.format(dsn=self.db.operator_dsn, key=key))

    def dead(self, *arguments, code=0):
        done = run_command("dead", *arguments, "-c", str(self.path))
        assert done.returncode == code, done.stderr + done.stdout
        return done.stdout if code == 0 else done.stderr

    def kill(self, event_id, key="order_id", reason="refused"):
        """Dead-letters an event as settle does."""
        self.db.query(
            f"with gone as (delete from public.events e where id = %s returning e.*)"
            f" insert into outbox.dead (queue, event_id, key, type, reason, attempts, source_table, original)"
            f" select 'orders', g.id, g.{key}::text, 'paid', %s, 12, 'public.events', row_to_json(g) from gone g",
            (event_id, reason))

    def park(self, event_id, key, next_at="infinity", keyless=False):
        self.db.query("insert into outbox.parked (queue, key, event_id, keyless, attempts, next_at, last_error)"
                      " values ('orders', %s, %s, %s, 12, %s, 'no')", (key, event_id, keyless, next_at))

    def insert(self, *keys):
        return [self.db.value("insert into public.events (order_id, status) values (%s, 'paid') returning id", (key,))
                for key in keys]

    def parked(self):
        return self.db.query("select key, event_id, keyless, attempts, next_at <= now() from outbox.parked order by event_id")

    def ids(self):
        return [row[0] for row in self.db.query("select id from public.events order by id")]


def test_retry_puts_the_row_back_as_it_was_and_points_the_relays_at_it(shop):
    first, second, _ = shop.insert(7, 7, 8)
    before = shop.db.query("select * from public.events where id = %s", (first,))
    shop.kill(first)
    shop.kill(second)
    assert shop.dead("retry", "--key", "7") == "retried 2 dead letters, opened 0 closed keys\n"
    assert shop.db.query("select * from public.events where id = %s", (first,)) == before
    assert shop.parked() == [("7", first, False, 0, True)]
    assert shop.db.value("select count(*) from outbox.dead") == 0


def test_what_was_put_back_waits_for_nothing(shop):
    """It is not counted among what waits, by outbox.status_parked as little as by outbox.overview."""
    dead, failed = shop.insert(7, 8)
    shop.kill(dead)
    shop.park(failed, "8", next_at="2026-01-01")  # due again since
    shop.dead("retry", "--key", "7")
    assert shop.parked() == [("7", dead, False, 0, True), ("8", failed, False, 12, True)]
    assert shop.db.query("select keys, closed, paused, delayed from outbox.status_parked where queue = 'orders'") == [(1, 0, 0, 0)]
    shop.db.query("update outbox.parked set next_at = 'infinity', resume_at = now() where key = '7'")
    assert shop.db.query("select keys, paused from outbox.status_parked where queue = 'orders'") == [(2, 1)]


def test_every_type_of_column_survives_the_round_trip(shop):
    shop.create("create table public.events (id bigint generated always as identity primary key, order_id text, status text,"
                " payload json, doc jsonb, bytes bytea, at timestamptz, amount numeric, real8 float8, tags text[],"
                " twice bigint generated always as (id * 2) stored, \"odd \"\"name\" uuid)")
    shop.db.query("insert into public.events (order_id, status, payload, doc, bytes, at, amount, real8, tags, \"odd \"\"name\")"
                  " values (E'k\\u00e9y\\'', 's', '{\"b\" : 1,  \"a\":[1e400, 0.10], \"a\": \"\\u00e9\"}', '{\"x\": 0.10}',"
                  " '\\x00ff0a27', '2026-01-02 03:04:05.123456+02', 1e30, 0.1, array['a,b', null, '\"'], gen_random_uuid())")
    everything = "select e::text, payload::text from public.events e"
    before = shop.db.query(everything)
    shop.kill(1)
    shop.dead("retry", "--all")
    assert shop.db.query(everything) == before


def test_retry_of_one_id_leaves_the_others_of_its_key(shop):
    ids = shop.insert(7, 7, 7)
    for event_id in ids:
        shop.kill(event_id)
    shop.dead("retry", "--id", str(ids[1]))
    assert shop.ids() == [ids[1]]
    assert shop.db.query("select event_id from outbox.dead order by 1") == [(ids[0],), (ids[2],)]


def test_retry_lowers_the_head_of_a_key_that_is_parked_already(shop):
    first, second = shop.insert(7, 7)
    shop.kill(first)
    shop.park(second, "7", next_at="2099-01-01")
    shop.dead("retry", "--key", "7")
    assert shop.parked() == [("7", first, False, 0, True)]


def test_retry_of_an_event_whose_lease_goes_on_begins_anew(shop):
    """Another relay took the lease over while the letter was being written."""
    (dead,) = shop.insert(7)
    shop.kill(dead)
    shop.park(dead, "7", next_at="2099-01-01")
    shop.db.query("update outbox.parked set attempts = 2, token = gen_random_uuid()")
    shop.dead("retry", "--key", "7")
    assert shop.db.query("select event_id, attempts, token is not null from outbox.parked") == [(dead, 0, True)]


def test_retry_leaves_the_head_of_a_key_that_comes_before_it(shop):
    """It was committed late, when what has the higher id was dead already."""
    late, dead = shop.insert(7, 7)
    shop.kill(dead)
    shop.park(late, "7", next_at="2099-01-01")
    shop.dead("retry", "--key", "7")
    assert shop.ids() == [late, dead] and shop.parked() == [("7", late, False, 0, True)]


def test_an_event_without_a_key_is_retried_alone(shop):
    first, second = shop.insert(None, None)
    shop.kill(first)
    shop.kill(second)
    shop.dead("retry", "--id", str(second))
    assert shop.parked() == [("", second, True, 0, True)]
    shop.dead("retry", "--all")
    assert shop.parked() == [("", first, True, 0, True), ("", second, True, 0, True)]


def test_a_retried_id_is_kept_where_the_ordering_trigger_draws_ids(shop):
    shop.db.query("select outbox.install_ordering('public.events', 'order_id')")
    (first,) = shop.insert(7)
    shop.kill(first)
    shop.dead("retry", "--all")
    assert shop.ids() == [first]


LOCK_CLASS = 1120964849  # FNV-1a of "pgcourier:public.events"


@pytest.mark.parametrize("key_type, key, lock", [
    ("bigint", "-5", "hashint8(-5)"), ("int", "5", "hashint8(5)"), ("text", "k", "hashtext('k')"),
    ("uuid", "00000000-0000-0000-0000-00000000000a", "hashtext('00000000-0000-0000-0000-00000000000a')")])
def test_retry_waits_for_the_delivery_of_its_key(shop, key_type, key, lock):
    shop.create(f"create table public.events (id bigserial primary key, order_id {key_type}, status text)")
    shop.db.query(f"insert into public.events (order_id) values ('{key}')")
    shop.kill(1)
    relay = shop.db.connect(autocommit=False)
    relay.cursor().execute(f"select pg_advisory_xact_lock({LOCK_CLASS}, {lock})")
    with ThreadPoolExecutor(1) as pool:
        retry = pool.submit(shop.dead, "retry", "--all")
        wait_until(lambda: shop.db.value("select count(*) from pg_locks where locktype = 'advisory' and not granted"
                                         " and database = (select oid from pg_database where datname = current_database())"),
                   20, "the retry to wait")
        assert shop.ids() == []
        relay.rollback()
        assert "retried 1" in retry.result()
    relay.close()
    assert shop.ids() == [1]


def hold(db, keys):
    """What delivers keys so long, until it is closed."""
    other = db.connect(autocommit=False)
    for key in keys:
        other.cursor().execute(f"select pg_advisory_xact_lock({LOCK_CLASS}, hashint8({key}))")
    return other


BUSY = "pgcourier: dead {}: run it again for what is busy now (`pgcourier drain` the queue first, if it stays so): {}\n"


@pytest.mark.parametrize("verb", ["retry", "drop"])
def test_a_key_that_stays_busy_keeps_no_other_from_being_taken_up(shop, verb):
    ids = shop.insert(1, 2, 3)
    for event_id in ids:
        shop.kill(event_id)
    relay = hold(shop.db, [1])
    done = run_command("dead", verb, "--all", "-c", str(shop.path))
    assert done.returncode == 75 and "2 dead letters, opened 0" in done.stdout
    assert done.stderr == BUSY.format(verb, "queue orders, key 1")
    assert shop.db.query("select event_id from outbox.dead") == [(ids[0],)]
    assert [key for key, *_ in shop.parked()] == (["2", "3"] if verb == "retry" else [])
    assert shop.dead(verb, "--key", "1", code=75) == BUSY.format(verb, "queue orders, key 1"), "it is there"
    relay.close()
    assert "1 dead letter," in shop.dead(verb, "--all")


def test_busy_keys_are_waited_for_together_and_the_first_are_named(shop):
    keys = range(1, 41)
    for event_id in shop.insert(*keys, None):
        shop.kill(event_id)
    relay = hold(shop.db, keys)
    began = time.monotonic()
    message = shop.dead("retry", "--all", code=75)
    assert message == BUSY.format("retry", "queue orders, key 1; queue orders, key 10; queue orders, key 11; and 37 more")
    assert time.monotonic() - began < 20, "5 s, and not for each"
    assert shop.parked() == [("", 41, True, 0, True)]
    relay.close()


def test_a_key_whose_entry_somebody_has_locked_is_busy(shop):
    first, second = shop.insert(1, 2)
    shop.park(first, "1")
    shop.park(second, "2")
    other = shop.db.connect(autocommit=False)
    other.cursor().execute("select from outbox.parked where key = '1' for update")
    assert shop.dead("retry", "--all", code=75) == BUSY.format("retry", "queue orders, key 1")
    other.close()
    assert shop.parked() == [("1", first, False, 12, False), ("2", second, False, 0, True)]


def test_a_closed_key_is_opened_at_the_event_it_failed_on(shop):
    first, _ = shop.insert(7, 7)
    shop.park(first, "7")
    assert shop.dead("retry", "--key", "7") == "retried 0 dead letters, opened 1 closed key\n"
    assert shop.parked() == [("7", first, False, 0, True)]


def test_a_key_that_only_waits_is_not_touched(shop):
    (first,) = shop.insert(7)
    shop.park(first, "7", next_at="2099-01-01")
    assert "opened 0" in shop.dead("retry", "--all")
    assert "opened 0" in shop.dead("drop", "--all")
    assert shop.parked() == [("7", first, False, 12, False)] and shop.ids() == [first]


def test_drop_deletes_the_head_of_a_closed_key_and_goes_on_with_the_next(shop):
    first, second, other = shop.insert(7, 7, 8)
    shop.park(first, "7")
    assert shop.dead("drop", "--key", "7") == "dropped 0 dead letters, opened 1 closed key\n"
    assert shop.ids() == [second, other]
    assert shop.parked() == [("7", second, False, 0, True)]


def test_drop_goes_on_with_an_event_that_comes_before_the_head_of_a_closed_key(shop):
    """It was committed late, when what has the higher id had failed."""
    late, head, later = shop.insert(7, 7, 7)
    shop.park(head, "7")
    assert shop.dead("drop", "--key", "7") == "dropped 0 dead letters, opened 1 closed key\n"
    assert shop.ids() == [late, later]
    assert shop.parked() == [("7", late, False, 0, True)]


def test_drop_of_the_last_event_of_a_closed_key_leaves_nothing(shop):
    first, keyless = shop.insert(7, None)
    shop.park(first, "7")
    shop.park(keyless, "", keyless=True)
    assert "opened 2" in shop.dead("drop", "--all")
    assert shop.ids() == [] and shop.parked() == []


def test_drop_forgets_dead_letters_and_nothing_else(shop):
    first, second = shop.insert(7, 8)
    shop.kill(first)
    shop.kill(second)
    shop.dead("drop", "--key", "7")
    assert shop.db.query("select event_id from outbox.dead") == [(second,)] and shop.ids() == []


def test_list_and_show_say_what_is_there(shop):
    first, second = shop.insert(7, None)
    shop.kill(first, reason="answered 422")
    shop.park(second, "", keyless=True)
    listed = json.loads(shop.dead("list", "--json"))
    assert [(row["state"], row["id"], row["key"], row["reason"]) for row in listed] == [
        ("dead", first, "7", "answered 422"), ("closed", second, None, "no")]
    assert "answered 422" in shop.dead("list") and "closed" in shop.dead("list")
    assert json.loads(shop.dead("list", "--json", "--key", "8")) == []
    (shown,) = json.loads(shop.dead("show", "--id", str(first), "--json"))
    assert shown["row"]["order_id"] == 7
    assert '"order_id":7' in shop.dead("show", "--key", "7")


def test_wrong_uses_are_named(shop):
    assert "give --key, --id, --error or --all" in shop.dead("retry", code=64)
    assert 'as "retrry"; did you mean "retry"?' in shop.dead("retrry", code=64)
    for verb in ("retry --all", "drop --all", "list", "show"):
        assert 'has no queue "order"; did you mean "orders"? (its queues: orders' in shop.dead(*verb.split(), "--queue", "order", code=64)
    for wrong in ("x", "", "-", "1 ", " 1", "+1", "9223372036854775808", "-9223372036854775809"):
        assert f'--id "{wrong}": write a whole number of 64 bits' in shop.dead("list", "--id", wrong, code=64)
    for wrong in ("0", "-5", "x", "2147483648"):
        assert f'--limit: "{wrong}"' in shop.dead("list", "--limit", wrong, code=64)
    for least in ("-9223372036854775808", "9223372036854775807"):
        assert f"no dead letter with id {least}" in shop.dead("show", "--id", least, code=64)


@pytest.mark.parametrize("verb", ["list", "show", "retry", "drop"])
def test_a_pattern_that_ends_in_an_escape_is_refused_though_nothing_comes_that_far(shop, verb):
    (first,) = shop.insert(7)
    shop.kill(first)
    for pattern in "%\\", "no\\\\\\":
        assert shop.dead(verb, "--error", pattern, code=64) == (
            f'pgcourier: dead: --error "{pattern}" is no pattern: write a backslash at its end twice, as SQL\'s LIKE wants it\n')
    if verb == "list":
        assert "answered" not in shop.dead(verb, "--error", "no\\\\")
    assert shop.db.value("select count(*) from outbox.dead") == 1


def test_a_failure_leaves_the_dead_letter_where_it_is(shop):
    (first,) = shop.insert(7)
    shop.kill(first)
    shop.db.query("insert into public.events (id, order_id, status) values (%s, 7, 'again')", (first,))
    assert "duplicate key" in shop.dead("retry", "--all", code=65)
    assert shop.db.value("select count(*) from outbox.dead") == 1 and shop.parked() == []


def test_a_trigger_that_keeps_a_row_out_loses_no_dead_letter(shop):
    first, second = shop.insert(7, 7)
    shop.kill(first)
    shop.kill(second)
    shop.db.psql(f"create function public.refuse() returns trigger language plpgsql as $$ begin return null; end $$;"
                 f"create trigger refuse before insert on public.events for each row when (new.id = {second}) execute function public.refuse()")
    assert shop.dead("retry", "--key", "7", code=65) == (
        f"pgcourier: left as it is: queue orders, id {second}, key 7: a trigger keeps the row out; have the trigger return the row\n")
    assert shop.db.query("select event_id from outbox.dead") == [(second,)] and shop.ids() == [first]
    shop.db.psql("drop trigger refuse on public.events")
    assert shop.dead("retry", "--key", "7") == "retried 1 dead letter, opened 0 closed keys\n"


RUNNING = """
database: "{dsn}"
sinks:
  out: {{ type: file, path: "{path}" }}
queues:
  orders:
    table: public.events
    columns: {{ id: id, key: order_id, type: status }}
    sink: out
"""


def delivered(path):
    return [event["id"] for event in read_lines(path)] if path.exists() else []


def test_a_running_relay_finds_a_retried_event_far_below_the_ids_it_looks_at(shop, tmp_path, relay):
    path = tmp_path / "out.jsonl"
    first, second, keyless = shop.insert(7, 7, None)
    for event_id in (first, second, keyless):
        shop.kill(event_id)
    shop.db.query("select setval('public.events_id_seq', 5000000)")
    later = shop.insert(7, 8, None)
    relay(RUNNING.format(dsn=shop.db.dsn, path=path))
    wait_until(lambda: sorted(delivered(path)) == later, 30, "the later events")
    shop.dead("retry", "--all")
    wait_until(lambda: len(delivered(path)) == 6, 60, "the retried events")
    assert [event_id for event_id in delivered(path) if event_id in (first, second)] == [first, second]
    assert sorted(delivered(path)) == [first, second, keyless, *later]
    wait_until(lambda: shop.parked() == [] and shop.ids() == [], 60, "everything settled")


@pytest.mark.parametrize("verb, expected", [("retry", [0, 1, 2]), ("drop", [1, 2])])
def test_a_running_relay_goes_on_in_order_with_a_key_that_is_opened(shop, tmp_path, relay, verb, expected):
    path = tmp_path / "out.jsonl"
    ids = shop.insert(7, 7, 7)
    shop.park(ids[0], "7")
    (other,) = shop.insert(8)
    relay(RUNNING.format(dsn=shop.db.dsn, path=path))
    wait_until(lambda: delivered(path) == [other], 30, "the other key")
    shop.dead(verb, "--key", "7")
    wait_until(lambda: shop.ids() == [], 60, "the queue to be empty")
    assert delivered(path) == [other, *(ids[n] for n in expected)]


def test_what_is_named_and_not_there_is_said(shop):
    first, _ = shop.insert(7, 8)
    shop.kill(first)
    assert shop.dead("show", "--id", "99", code=64) == "pgcourier: dead show: no dead letter with id 99 in any queue\n"
    assert shop.dead("retry", "--id", "99", "--queue", "orders", code=64) == (
        "pgcourier: dead retry: no dead letter and no closed key with id 99 in queue orders\n")
    assert shop.dead("drop", "--key", "9", code=64) == "pgcourier: dead drop: no dead letter and no closed key of key 9 in any queue\n"
    assert shop.dead("drop", "--id", str(first)) == "dropped 1 dead letter, opened 0 closed keys\n"
    assert shop.dead("drop", "--all") == "dropped 0 dead letters, opened 0 closed keys\n"
