"""`pgcourier replay`: what the columns of the table have become since an event was delivered, or died, loses nothing of it without a
word."""

import psycopg2
import pytest

from tests.support.servers import run_command

CONFIG = """
database: "{dsn}"
sinks:
  hook: {{ type: http, url: "{url}/in" }}
queues:
  orders: {{ table: public.orders, columns: {{ key: customer, payload: {payload}, type: {type} }}, sink: hook, after: archive }}
"""
TABLE = "create table public.orders (id bigserial primary key, customer text, kind text, body jsonb, note text)"
MARK = "pgcourier-replayed"
LOST = "replay: event {} has a value in column '{}', which public.orders has no more; Add the column, or give --column {}=NEW to send such values"


@pytest.fixture(params=["archive", "dead"])
def shop(db, http, tmp_path, request):
    return Shop(db, http, tmp_path / "pgcourier.yaml", request.param)


class Shop:
    """Events 1 to 3 of key a are archived, or dead."""

    def __init__(self, db, http, path, source):
        self.db, self.http, self.path, self.source = db, http, path, source
        self.query, self.value = db.query, db.value
        self.query(TABLE)
        self.query("insert into public.orders (customer, kind, body, note) values"
                   " ('a', 'paid', '{\"n\": 1}', null), ('a', null, null, null), ('a', 'paid', '{\"n\": 3}', 'x')")
        more = {"archive": ("", ""), "dead": (", reason, attempts, source_table", ", 'no', 12, 'public.orders'")}[source]
        self.query(f"with gone as (delete from public.orders e returning e.*)"
                   f" insert into outbox.{source} (queue, event_id, key, original{more[0]})"
                   f" select 'orders', g.id, g.customer, row_to_json(g){more[1]} from gone g")
        db.let_relay_in("public.orders")
        self.map()

    def map(self, payload="body", type="kind"):
        self.path.write_text(CONFIG.format(dsn=self.db.replay_dsn, url=self.http.url, payload=payload, type=type))

    def alter(self, what):
        self.query(f"alter table public.orders {what}")

    def replay(self, *arguments, code=0):
        done = run_command("replay", "-q", "orders", "--from", self.source, *arguments, "-c", str(self.path))
        assert done.returncode == code, done.stderr + done.stdout
        return done.stdout if code == 0 else done.stderr

    def sent(self):
        return [(int(request.headers["event-id"]), request.body.decode(), request.headers.get("event-type"))
                for request in self.http.requests if MARK in request.headers]


def is_untouched(shop):
    return (shop.value(f"select count(*) from outbox.{shop.source}") == 3 and not shop.sent()
            and shop.value("select count(*) from outbox.replay") == 0)


def test_an_event_whose_column_was_renamed_is_not_sent_without_it(shop):
    shop.alter("rename body to payload")
    shop.map(payload="payload")
    assert LOST.format(1, "body", "body") in shop.replay("--key", "a", code=75)
    assert LOST.format(3, "body", "body") in shop.replay("--id", "3", "--dry-run", code=75)
    assert is_untouched(shop)
    assert "all 1 event sent" in shop.replay("--id", "2")
    assert shop.sent() == [(2, "", None)]


def test_a_value_is_sent_as_the_column_that_is_named(shop):
    shop.alter("rename body to payload")
    shop.alter("rename kind to type")
    shop.map(payload="payload", type="type")
    assert "all 3 events sent" in shop.replay("--key", "a", "--column", "body=payload", "--column", "kind=type")
    assert shop.sent() == [(1, '{"n": 1}', "paid"), (2, "", None), (3, '{"n": 3}', "paid")]


def test_a_dropped_column_matters_to_the_events_that_have_a_value_for_it(shop):
    shop.alter("drop note")
    assert LOST.format(3, "note", "note") in shop.replay("--key", "a", code=75)
    assert is_untouched(shop)
    assert "all 2 events sent" in shop.replay("--id", "1,2")
    assert "all 1 event sent" in shop.replay("--id", "3", "--column", "note=")
    assert [event_id for event_id, _, _ in shop.sent()] == [1, 2, 3]


def test_a_new_column_has_what_the_rows_of_that_time_were_given(shop):
    shop.alter("add status varchar(20) default 'plain', add n bigint default 5, add extra text")
    shop.map(type="status")
    shop.replay("--key", "a")
    assert [kind for _, _, kind in shop.sent()] == ["plain"] * 3


def test_no_code_of_a_tables_owner_runs_for_a_replay(shop):
    """A default may be anybody's function, and a replay is made with the rights of the schema's owner."""
    shop.query("create function public.trap() returns text language plpgsql as $$ begin raise 'trapped'; end $$")
    shop.alter("add status text, alter status set default public.trap()")
    assert "all 3 events sent" in shop.replay("--key", "a")


def test_two_values_for_one_column_are_refused(shop):
    shop.alter("rename note to remark")
    assert ("event 3 has values in both columns, 'note' and 'body'; With --column note= the first is left out"
            in shop.replay("--key", "a", "--column", "note=body", code=75))
    assert is_untouched(shop)


@pytest.mark.parametrize("arguments, text", [
    (["--column", "note=body"], "replay: public.orders has a column 'note'"),
    (["--column", "gone=lost"], "replay: 'lost' is no column of public.orders that values of one other column can go to"),
    (["--column", "gone=note", "--column", "lost=note"], "replay: 'note' is no column of public.orders that values of one other"),
    (["--column", "gone"], '--column "gone": write OLD=NEW'),
])
def test_a_move_that_cannot_be_is_refused(shop, arguments, text):
    assert text in shop.replay("--key", "a", *arguments, code=64)
    assert is_untouched(shop)


def test_sql_refuses_and_moves_alike(shop):
    shop.query("grant select, delete on public.orders to shop_owner; set role shop_owner;"
               " select outbox.queue_set('orders', 'public.orders', key_column => 'customer', payload_column => 'body')")
    shop.alter("drop note")
    call = "select events from outbox.replay('orders', %s, key => 'a', map => %s)"

    def choose(moves):
        with psycopg2.connect(shop.db.replay_dsn) as operator:
            cursor = operator.cursor()
            cursor.execute(call, (shop.source, moves))
            return cursor.fetchall()

    for moves, state in ((None, "55000"), ('{"columns": 5}', "22023"), ('{"columns": {"note": "none"}}', "22023")):
        with pytest.raises(psycopg2.Error) as refused:
            choose(moves)
        assert refused.value.pgcode == state and refused.value.diag.message_hint
    assert is_untouched(shop)
    assert choose('{"columns": {"note": null}}') == [(3,)]


MAPS = "replay: event 1 has no column '{0}', which the queue maps; Give --column OLD={0} to send what is in another column ('{1}'?)"


@pytest.mark.parametrize("again, named", [("add body jsonb generated always as (payload) stored", "body"), ("add body jsonb", "body")],
                         ids=["generated", "plain"])
def test_a_payload_whose_old_name_is_used_again_is_not_sent_as_nothing(shop, again, named):
    shop.alter("rename body to payload")
    shop.alter(again)
    shop.map(payload="payload")
    assert MAPS.format("payload", named) in shop.replay("--key", "a", code=75)
    assert is_untouched(shop)
    assert "all 1 event sent" in shop.replay("--id", "1", "--column", "=payload") and shop.sent() == [(1, "", "paid")]


def test_what_is_in_a_column_that_is_generated_now_is_sent_as_the_column_that_is_named(shop):
    shop.alter("rename body to payload")
    shop.alter("add body jsonb generated always as (payload) stored")
    shop.map(payload="payload")
    after = '{"id": 3, "customer": "a", "kind": "paid", "payload": {"n": "new"}, "note": null, "body": {"n": "new"}}'
    shop.query(f"update outbox.{shop.source} set original = %s where event_id = 3", (after,))  # from after the rename
    assert "all 3 events sent" in shop.replay("--key", "a", "--column", "body=payload")
    assert shop.sent() == [(1, '{"n": 1}', "paid"), (2, "", None), (3, '{"n": "new"}', "paid")]


def test_a_type_whose_old_name_is_generated_now_is_not_sent_as_nothing(shop):
    shop.alter("rename kind to type")
    shop.alter("add kind text generated always as (type) stored")
    shop.map(type="type")
    assert MAPS.format("type", "kind") in shop.replay("--key", "a", code=75)
    assert is_untouched(shop)
    assert "all 3 events sent" in shop.replay("--key", "a", "--column", "kind=type")
    assert [kind for _, _, kind in shop.sent()] == ["paid", None, "paid"]


def test_a_column_that_was_generated_then_and_is_now_keeps_no_event(shop):
    shop.alter("add twice bigint generated always as (id * 2) stored")
    shop.query(f"update outbox.{shop.source} set original = (original::jsonb || '{{\"twice\": 5}}')::json")
    assert "all 3 events sent" in shop.replay("--key", "a")
