"""pgcourier dead: a letter that cannot be put back stays, is named with its reason and a remedy, and keeps no other from going back."""

import re
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.postgres import OPERATOR_ROLE
from tests.support.relay import binary
from tests.support.servers import run_command, wait_until

CONFIG = """
database: "{dsn}"
sinks:
  none: {{ type: discard }}
queues:
  orders: {{ table: public.orders, columns: {{ key: customer, payload: payload }}, sink: none }}
"""
TABLE = ("create type public.mood as enum ('glad', 'sad');"
         "create domain public.amount as int;"
         "create table public.orders (id bigserial primary key, customer text, payload json, kind text default 'sold', mood public.mood, n public.amount)")
BAD, LAST = 5, 9


@pytest.fixture
def shop(db, tmp_path):
    return Shop(db, tmp_path / "pgcourier.yaml")


class Shop:
    """Dead letters 1 to 9, of the keys a, b and c in turn."""

    def __init__(self, db, path):
        self.db, self.path = db, path
        self.query, self.value = db.query, db.value
        db.psql(TABLE)
        self.kill(f"select g, chr(97 + g % 3), json_build_object('n', g), 'paid', 'glad'::public.mood, g from generate_series(1, {LAST}) g")
        self.let_in()

    def let_in(self):
        self.db.let_operator_in("public.orders")
        self.path.write_text(CONFIG.format(dsn=self.db.operator_dsn))

    def kill(self, rows):
        self.query(f"insert into outbox.dead (queue, event_id, key, reason, attempts, source_table, original)"
                   f" select 'orders', g.id, g.customer, 'no', 12, 'public.orders', row_to_json(g)"
                   f" from ({rows}) g (id, customer, payload, kind, mood, n)")

    def retry(self, *arguments, verb="retry"):
        done = run_command("dead", verb, *(arguments or ["--all"]), "-c", str(self.path), timeout_s=180)
        return done.returncode, done.stdout, done.stderr

    def letters(self):
        return [row[0] for row in self.query("select event_id from outbox.dead order by 1")]

    def ids(self):
        return [row[0] for row in self.query("select id from public.orders order by id")]


RAISE = ("create function public.refuse() returns trigger language plpgsql as $$ begin raise 'not this one' using errcode = '{}'; end $$;"
         "create trigger refuse {} insert on public.orders {} for each row when (new.id = 5) execute function public.refuse()")
CAUSES = {
    "not null": (f"update outbox.dead set original = (original::jsonb - 'kind')::json where event_id = {BAD};"
                 " alter table public.orders alter kind drop default, alter kind set not null", 'null value in column "kind"', "give the column a default"),
    "check": (f"alter table public.orders add check (id <> {BAD})", "violates check constraint", "mend the constraint"),
    "unique": (f"insert into public.orders (id, customer) values ({BAD}, 'x')", "duplicate key value violates unique", "drop the letter if that row is its event"),
    "foreign key": ("create table public.kinds (n int primary key); insert into public.kinds select g from generate_series(1, 9) g where g <> 5;"
                    " alter table public.orders add foreign key (n) references public.kinds deferrable initially deferred",
                    "violates foreign key constraint", "insert the row that it refers to"),
    "enum": (f"update outbox.dead set original = replace(original::text, 'glad', 'mad')::json where event_id = {BAD}",
             'invalid input value for enum public.mood: "mad"', "alter type ... add value"),
    "domain": (f"alter domain public.amount add check (value <> {BAD})", "value for domain public.amount violates check constraint", "mend the constraint"),
    "type": (f"update outbox.dead set original = replace(original::text, 'paid', 'x')::json where event_id <> {BAD};"
             " alter table public.orders alter kind drop default, alter kind type varchar(2)", "value too long for type", "take the value again"),
    "zero byte": ("update outbox.dead set original = (E'{\"id\": 5, \"customer\": \"c\", \"payload\": {\"t\": \"\\\\u0000\"}}')::json where event_id = 5;"
                  " alter table public.orders alter payload type jsonb", "unsupported Unicode escape sequence", "which keep \\u0000"),
    "partition": ("drop table public.orders; create table public.orders (id bigint not null, customer text, payload json, kind text, mood public.mood,"
                  " n public.amount, primary key (id)) partition by range (id); create table public.orders_1 partition of public.orders for values from (1) to (5);"
                  " create table public.orders_2 partition of public.orders for values from (6) to (10)", "no partition of relation", "make the partition"),
    "trigger": (RAISE.format("P0001", "before", ""), "not this one", "mend the trigger"),
    "trigger with another's code": (RAISE.format("0A000", "before", ""), "not this one", "mend the cause"),
    "trigger with a state of the object": (RAISE.format("55000", "before", ""), "not this one", "mend the cause"),
    "deferred trigger": (RAISE.format("P0001", "after", "deferrable initially deferred").replace("create trigger", "create constraint trigger"),
                         "not this one", "mend the trigger"),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_a_letter_that_cannot_go_back_stays_and_is_named_and_the_others_go(shop, cause):
    sql, reason, remedy = CAUSES[cause]
    shop.db.psql(sql)
    shop.let_in()
    code, out, said = shop.retry()
    assert code == 65 and out == "retried 8 dead letters, opened 0 closed keys, left 1 as it is\n", said
    assert said.startswith("pgcourier: left as it is: queue orders, id 5, key c: ") and said.count("\n") == 1
    assert reason in said and remedy in said
    assert shop.letters() == [BAD] and shop.ids()[-8:] == [n for n in range(1, LAST + 1) if n != BAD or cause == "unique"][-8:]
    assert shop.query("select key, event_id, attempts from outbox.parked order by 1") == [("a", 3, 0), ("b", 1, 0), ("c", 2, 0)]


def test_none_that_can_go_back_ends_with_the_same_code(shop):
    shop.query("alter table public.orders add check (id < 0)")
    code, out, said = shop.retry()
    assert code == 65 and out == "retried 0 dead letters, opened 0 closed keys, left 9 as they are\n" and said.count("\n") == 9
    assert shop.letters() == list(range(1, 10)) and shop.value("select count(*) from outbox.parked") == 0


def test_by_key_id_and_error_the_rest_goes_back_too(shop):
    shop.query("alter table public.orders add check (id <> 5)")
    assert shop.retry("--id", "5")[0] == 65
    assert shop.retry("--key", "c")[:2] == (65, "retried 2 dead letters, opened 0 closed keys, left 1 as it is\n")
    assert shop.retry("--error", "n%")[:2] == (65, "retried 6 dead letters, opened 0 closed keys, left 1 as it is\n")


def test_what_fails_without_any_letter_is_said_once(shop):
    shop.query("revoke insert on public.orders from " + OPERATOR_ROLE)
    code, out, said = shop.retry()
    assert code == 77 and out == "" and said.count("\n") == 1 and "permission denied" in said
    assert len(shop.letters()) == LAST


def test_a_queue_that_cannot_be_served_keeps_no_other_from_being_served(shop):
    shop.path.write_text(shop.path.read_text().replace("queues:\n", "queues:\n  gone: { table: public.gone, sink: none }\n"))
    code, out, said = shop.retry()
    assert code == 78 and "retried 9 dead letters" in out and "public.gone" in said
    assert shop.letters() == []


def test_a_closed_key_whose_event_cannot_be_dropped_keeps_no_other_closed(shop):
    shop.query("delete from outbox.dead")
    shop.query("insert into public.orders (id, customer) select g, 'k' || g from generate_series(1, 3) g")
    shop.query("insert into outbox.parked (queue, key, event_id, attempts, next_at, last_error) select 'orders', customer, id, 3, 'infinity', 'no' from public.orders")
    shop.db.psql("create function public.keep() returns trigger language plpgsql as $$ begin raise 'kept'; end $$;"
                 "create trigger keep before delete on public.orders for each row when (old.id = 2) execute function public.keep()")
    code, out, said = shop.retry("--all", verb="drop")
    assert code == 65 and out == "dropped 0 dead letters, opened 2 closed keys, left 1 as it is\n"
    assert said == "pgcourier: left as it is: queue orders, key k2: kept; mend the trigger or function\n"
    assert shop.ids() == [2] and shop.query("select key from outbox.parked") == [("k2",)]


def test_an_event_that_died_twice_goes_back_once(shop):
    shop.kill("select 5, 'c', '{}'::json, 'paid', 'sad'::public.mood, 1")
    code, out, said = shop.retry()
    assert code == 65 and "retried 9 dead letters" in out and "id 5, key c: duplicate key" in said
    assert shop.letters() == [5] and shop.ids() == list(range(1, 10))


def test_odd_names_and_texts_are_one_line_each(shop):
    shop.query("update outbox.dead set key = E'c\\n\\x1b[31m' || repeat('\u00e9', 100) where event_id = 5")
    shop.query("alter table public.orders add check (id <> 5)")
    said = shop.retry()[2]
    assert said.count("\n") == 1 and "\x1b" not in said and said.endswith("takes the row\n")


def many(shop, count, bad="false"):
    shop.query("delete from outbox.dead")
    shop.kill(f"select g, 'k' || g % 5000, '{{}}'::json, case when {bad} then 'bad' else 'paid' end, null::public.mood, 1 from generate_series(1, {count}) g")
    shop.query("alter table public.orders add constraint good check (kind <> 'bad')")


def test_many_letters_go_back_quickly_and_the_bad_ones_among_them_stay(shop):
    many(shop, 100_000, "g % 1000 = 7")
    began = time.monotonic()
    code, out, said = shop.retry()
    took = time.monotonic() - began
    assert code == 65 and "retried 99900 dead letters" in out and said.count("\n") == 100
    assert shop.letters() == list(range(7, 100_000, 1000)) and shop.value("select count(*) from public.orders") == 99_900
    assert shop.query("select count(*), min(event_id), max(event_id) from outbox.parked") == [(4995, 1, 5000)], "nothing points at the bad ones"
    print(f"100,000 letters in {took:.1f} s")
    assert took < 120


def test_each_transaction_is_bounded(shop):
    many(shop, 3000)
    shop.query("create table public.sizes (n bigint); grant insert on public.sizes to public;"
               "create function public.note() returns trigger language plpgsql as $$ begin insert into public.sizes select count(*) from added; return null; end $$;"
               "create trigger note after insert on public.orders referencing new table as added for each statement execute function public.note()")
    shop.retry()
    assert shop.query("select max(n) <= 256, sum(n) from public.sizes") == [(True, 3000)]


def test_a_command_that_is_interrupted_loses_nothing_and_repeats_nothing(shop):
    many(shop, 5000, "g = 4000")
    other = shop.db.connect(autocommit=False)
    other.cursor().execute("insert into public.orders (id) values (3000)")  # its unique key stops the command there
    process = subprocess.Popen([binary(), "dead", "retry", "--all", "-c", str(shop.path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until(lambda: shop.value("select count(*) from public.orders") > 0, 30, "some to go back")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    other.rollback()
    other.close()
    wait_until(lambda: shop.value("select count(*) from pg_stat_activity where datname = current_database() and usename <> current_user") == 0, 30, "its session to end")
    both = shop.letters() + shop.ids()
    assert sorted(both) == list(range(1, 5001)), "each is in one place"
    assert 0 < len(shop.ids()) < 5000
    assert shop.retry()[0] == 65 and shop.letters() == [4000] and shop.value("select count(*) from public.orders") == 4999


def test_two_operators_at_once_put_each_letter_back_once(shop):
    many(shop, 4000, "g % 500 = 7")
    with ThreadPoolExecutor(2) as pool:
        done = [future.result() for future in [pool.submit(shop.retry) for _ in range(2)]]
    assert all(code in (0, 65, 75) for code, _, _ in done), done
    if 75 in [code for code, _, _ in done]:
        shop.retry()
    counts = [int(re.search(r"retried (\d+)", out).group(1)) for _, out, _ in done if out]
    assert sum(counts) <= 3992
    assert shop.retry()[0] == 65
    assert shop.letters() == list(range(7, 4000, 500)) and shop.value("select count(*) from public.orders") == 3992


@pytest.mark.parametrize("cause", ["trigger", "check"])
def test_the_right_to_insert_is_enough(shop, cause):
    shop.db.psql(CAUSES[cause][0])
    shop.query("revoke select, delete on public.orders from public, outbox_relay, " + OPERATOR_ROLE)
    code, out, said = shop.retry()
    assert code == 65 and "retried 8 dead letters" in out and "id 5, key c: " in said
