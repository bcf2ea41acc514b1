"""pgcourier dead retry: what the columns of the table have become since an event died loses nothing of it without a word."""

import pytest

from tests.support.servers import run_command

CONFIG = """
database: "{dsn}"
sinks:
  none: {{ type: discard }}
queues:
  orders:
    table: public.orders
    columns: {{ key: customer, payload: {payload} }}
    sink: none
"""
TABLE = 'create table public.orders (id bigserial primary key, customer text, payload jsonb, note text, "Odd=""" text)'
LOST = 'queue orders, id {}, key {}: it has a value in column "{}", which public.orders has no more; add the column, or give'


@pytest.fixture
def shop(db, tmp_path):
    return Shop(db, tmp_path / "pgcourier.yaml")


class Shop:
    """One queue over public.orders, whose first three events are dead letters of the key a, and the fourth of b."""

    def __init__(self, db, path):
        self.db = db
        self.path = path
        self.value, self.query = db.value, db.query
        self.query(TABLE)
        self.query("insert into public.orders (customer, payload, note) values"
                   " ('a', '{\"n\": 1}', null), ('a', null, null), ('a', '{\"n\": 3}', 'x'), ('b', '{\"n\": 4}', null)")
        self.query("with gone as (delete from public.orders e returning e.*)"
                   " insert into outbox.dead (queue, event_id, key, reason, attempts, source_table, original)"
                   " select 'orders', g.id, g.customer, 'no', 12, 'public.orders', row_to_json(g) from gone g")
        db.let_operator_in("public.orders")
        self.map_payload("payload")

    def map_payload(self, name):
        self.path.write_text(CONFIG.format(dsn=self.db.operator_dsn, payload=name))

    def alter(self, what):
        self.query(f"alter table public.orders {what}")

    def retry(self, *arguments, code=0):
        done = run_command("dead", "retry", *arguments, "-c", str(self.path))
        assert done.returncode == code, done.stderr + done.stdout
        return done.stdout if code == 0 else done.stderr

    def letters(self):
        return [row[0] for row in self.query("select event_id from outbox.dead order by 1")]

    def rows(self, columns):
        return self.query(f"select {columns} from public.orders order by id")


def is_untouched(shop):
    return shop.letters() == [1, 2, 3, 4] and shop.rows("id") == [] and shop.value("select count(*) from outbox.parked") == 0


@pytest.mark.parametrize("mapped", [True, False])
def test_a_letter_whose_column_was_renamed_stays_one_and_is_named(shop, mapped):
    shop.alter("rename payload to body")
    if mapped:
        shop.map_payload("body")
    else:
        shop.query("alter table public.orders add payload2 jsonb")
        shop.map_payload("payload2")
    said = shop.retry("--all", code=65)
    for event_id, key in (1, "a"), (3, "a"), (4, "b"):
        assert LOST.format(event_id, key, "payload") + " --column payload=NEW to put such values into another one" in said
    assert said.count("\n") == 3 and shop.letters() == [1, 3, 4] and shop.rows("id") == [(2,)], "2 has no payload"


def test_a_value_goes_into_the_column_that_is_named(shop):
    shop.alter("rename payload to body")
    shop.map_payload("body")
    assert "retried 4 dead letters" in shop.retry("--all", "--column", "payload=body")
    assert shop.rows("id, body, note") == [(1, {"n": 1}, None), (2, None, None), (3, {"n": 3}, "x"), (4, {"n": 4}, None)]
    assert shop.letters() == []


def test_what_the_text_of_a_value_was_stays_when_it_moves(shop):
    text = '{"b" : 1,  "a":[1e400, 0.10], "a": "\\u00e9"}'
    shop.alter("alter payload type json using null")
    shop.query("update outbox.dead set original = ('{\"id\": 1, \"customer\": \"a\", \"payload\": ' || %s || '}')::json where event_id = 1", (text,))
    shop.alter("rename payload to body")
    shop.map_payload("body")
    shop.retry("--id", "1", "--column", "payload=body")
    assert shop.rows("body::text") == [(text,)]


def test_a_renamed_column_that_has_its_old_name_again_takes_its_values_back(shop):
    shop.alter("rename payload to body")
    shop.map_payload("body")
    shop.retry("--id", "1", code=65)
    shop.alter("rename body to payload")
    shop.map_payload("payload")
    assert "retried 4 dead letters" in shop.retry("--all")
    assert shop.rows("payload")[0] == ({"n": 1},)


@pytest.mark.parametrize("name", ["PAYLOAD", "payload "])
def test_a_name_that_only_looks_the_same_is_another(shop, name):
    shop.alter(f'rename payload to "{name}"')
    shop.query("alter table public.orders add body jsonb")
    shop.map_payload("body")
    assert LOST.format(4, "b", "payload") in shop.retry("--id", "4", code=65)


def test_a_dropped_column_matters_to_the_letters_that_have_a_value_for_it(shop):
    shop.alter("drop note")
    assert LOST.format(3, "a", "note") in shop.retry("--all", code=65)
    assert shop.letters() == [3]
    assert "retried 1 dead letter," in shop.retry("--key", "a", "--column", "note=")
    assert shop.rows("id, payload") == [(1, {"n": 1}), (2, None), (3, {"n": 3}), (4, {"n": 4})]


def test_a_new_column_gets_its_default_and_a_null_of_the_letter_stays_null(shop):
    shop.query("create domain public.level as int default 7")
    shop.alter("add kind varchar(10) default 'sold', add at timestamptz default now() - interval '1 day', add weight bigint default 3,"
               " add level public.level, add day date not null default now(), add number bigint generated by default as identity,"
               " add twice bigint generated always as (id * 2) stored, add empty text, alter note set default 'nothing'")
    shop.query("grant usage on sequence public.orders_number_seq to public")
    shop.retry("--all")
    assert shop.rows("id, kind, weight, level, twice, empty, note") == [
        (1, "sold", 3, 7, 2, None, None), (2, "sold", 3, 7, 4, None, None), (3, "sold", 3, 7, 6, None, "x"), (4, "sold", 3, 7, 8, None, None)]
    assert shop.value("select count(*) from public.orders where at < now() - interval '1 hour' and day = current_date") == 4
    assert sorted(row[0] for row in shop.rows("number")) == [1, 2, 3, 4]


def test_a_column_moved_to_one_that_is_there_already_takes_the_value_that_the_letter_has(shop):
    """Letters from before and from after the rename."""
    shop.alter("rename payload to body")
    shop.map_payload("body")
    for event_id, row in ((1, '{"id": 1, "customer": "a", "body": {"n": "new"}}'),
                          (2, '{"id": 2, "customer": "a", "payload": null, "body": {"n": "new"}}'),
                          (3, '{"id": 3, "customer": "a", "payload": {"n": "old"}, "body": null}')):
        shop.query("update outbox.dead set original = %s where event_id = %s", (row, event_id))
    shop.retry("--all", "--column", "payload=body")
    assert shop.rows("body") == [({"n": "new"},), ({"n": "new"},), ({"n": "old"},), ({"n": 4},)]


def test_two_values_for_one_column_are_refused(shop):
    shop.alter("rename payload to body")
    shop.map_payload("body")
    shop.query("update outbox.dead set original = '{\"id\": 4, \"customer\": \"b\", \"payload\": 1, \"body\": 2}' where event_id = 4")
    assert ('id 4, key b: it has values in both columns, "payload" and "body"; give --column payload= if that one is to be lost'
            in shop.retry("--id", "4", "--column", "payload=body", code=65))
    assert is_untouched(shop)
    shop.retry("--id", "4", "--column", "payload=")
    assert shop.rows("id, body") == [(4, 2)]


@pytest.mark.parametrize("arguments, text", [
    (["--column", "note=customer"], "--column note=: public.orders of queue orders has that column"),
    (["--column", "gone=gone too"], "--column ...=gone too: public.orders of queue orders has no column of that name"),
    (["--column", "gone=twice"], "--column ...=twice: public.orders of queue orders has no column of that name"),
    (["--column", "gone=note", "--column", "lost=note"], "--column: note is there twice"),
    (["--column", "gone=", "--column", "gone=note"], "--column: gone is there twice"),
    (["--column", "gone"], '--column "gone": write OLD=NEW, OLD= for values that are to be lost, or =NEW'),
    (["--column", "="], '--column "=": write OLD=NEW'),
    (["--column", "=gone"], "--column ...=gone: public.orders of queue orders has no column of that name"),
])
def test_a_move_that_cannot_be_is_refused(shop, arguments, text):
    shop.alter("add twice bigint generated always as (id * 2) stored")  # nobody can write to it
    assert text in shop.retry("--all", *arguments, code=64)
    assert is_untouched(shop)


def test_moves_are_for_retry(shop):
    done = run_command("dead", "drop", "--all", "--column", "note=", "-c", str(shop.path))
    assert done.returncode == 64 and "--column is for retry" in done.stderr


def test_names_may_be_any_text(shop):
    shop.query("update outbox.dead set original = json_build_object('id', 4, 'customer', 'b', %s, 'v') where event_id = 4", ("it's \\ \"{,}:x",))
    assert "it's \\ \"{,}:x" in shop.retry("--id", "4", code=65)
    shop.retry("--id", "4", "--column", "it's \\ \"{,}:x=Odd=\"")
    assert shop.query("select \"Odd=\"\"\" from public.orders") == [("v",)]


def test_a_waiting_dedupe_key_of_the_ready_made_table_is_not_in_the_way(db, tmp_path):
    path = tmp_path / "outbox.yaml"
    path.write_text(f'database: "{db.operator_dsn}"\nsinks: {{ none: {{ type: discard }} }}\n'
                    "queues: { outbox: { table: outbox.events, columns: { key: aggregateid }, sink: none } }\n")
    db.query("insert into outbox.dead (queue, event_id, key, reason, attempts, source_table, original) values ('outbox', 1, 'k', 'no', 1,"
             " 'outbox.events', '{\"id\": 1, \"aggregateid\": \"k\", \"payload\": 5, \"event_id\": \"5f1b9a3e-0c1d-4f5e-8a6b-1c2d3e4f5a6b\","
             " \"created_at\": \"2026-01-01T00:00:00Z\", \"dedupe_key\": \"d\", \"again_after\": null}')")
    db.let_operator_in("outbox.events")
    done = run_command("dead", "retry", "--all", "-c", str(path))
    assert done.returncode == 0, done.stderr
    assert db.query("select id, aggregateid, payload, dedupe_key from outbox.events") == [(1, "k", 5, None)]


SHIM = "add payload jsonb generated always as (body) stored"


@pytest.mark.parametrize("mapped", ["body", "payload"])
def test_a_generated_column_with_the_old_name_takes_no_value_away(shop, mapped):
    shop.alter("rename payload to body")
    shop.alter(SHIM)
    shop.map_payload(mapped)
    said = shop.retry("--all", code=65)
    assert said.count("\n") == 3 and all(f"id {event_id}, key" in said for event_id in (1, 3, 4))
    assert {"body": 'it has no column "body", which is the queue\'s payload; give --column OLD=body with the column that its payload is in',
            "payload": 'it has another value in column "payload" than public.orders computes; give --column payload=NEW'}[mapped] in said
    assert shop.letters() == [1, 3, 4] and shop.rows("id, body") == [(2, None)]
    assert "retried 3 dead letters" in shop.retry("--all", "--column", "payload=body")
    assert shop.rows("body, payload, note") == [({"n": 1}, {"n": 1}, None), (None, None, None), ({"n": 3}, {"n": 3}, "x"), ({"n": 4}, {"n": 4}, None)]


def test_a_letter_from_after_the_rename_goes_back_as_it_was_with_or_without_a_move(shop):
    """It has both columns, the generated one, too, and the letters from before have but one."""
    shop.alter("rename payload to body")
    shop.alter(SHIM)
    shop.map_payload("body")
    after = '{"id": %s, "customer": "b", "body": {"n": 4}, "note": null, "payload": {"n": 4}}'
    shop.query("update outbox.dead set original = %s where event_id = 4", (after % 4,))
    assert "retried 1 dead letter," in shop.retry("--id", "4")
    shop.query("insert into outbox.dead (queue, event_id, key, reason, attempts, source_table, original)"
               " values ('orders', 5, 'b', 'no', 12, 'public.orders', %s)", (after % 5,))
    assert "retried 4 dead letters" in shop.retry("--all", "--column", "payload=body")
    assert shop.rows("id, body") == [(1, {"n": 1}), (2, None), (3, {"n": 3}), (4, {"n": 4}), (5, {"n": 4})]


def test_what_a_generated_column_computes_otherwise_today_is_named_or_given_up(shop):
    shop.alter("add twice bigint generated always as (id * 2) stored")
    shop.query("update outbox.dead set original = (original::jsonb || jsonb_build_object('twice', event_id * case event_id when 4 then 3 else 2 end))::json")
    assert 'id 4, key b: it has another value in column "twice" than public.orders computes' in shop.retry("--all", code=65)
    assert shop.letters() == [4]
    shop.retry("--all", "--column", "twice=")
    assert shop.rows("id, twice") == [(1, 2), (2, 4), (3, 6), (4, 8)]


def test_a_letter_is_not_put_back_without_the_payload_that_it_may_have_elsewhere(shop):
    """A plain column took the old name: nothing tells its values apart from those of the payload."""
    shop.alter("rename payload to body")
    shop.alter("add payload jsonb")
    shop.map_payload("body")
    assert '("payload"?), or --column =body if it has none' in shop.retry("--id", "4", code=65)
    shop.retry("--id", "4", "--column", "=body")
    assert shop.rows("id, body, payload") == [(4, None, {"n": 4})]


def test_a_letter_is_not_put_back_without_its_key(shop):
    shop.alter("rename customer to client")
    shop.alter("add customer text")
    shop.path.write_text(shop.path.read_text().replace("key: customer", "key: client"))
    assert "id 4, key b: its row would have no key; map the column that has the key" in shop.retry("--id", "4", code=65)
    assert is_untouched(shop)
