"""`pgcourier replay`: archived and dead events are sent again, by the locks of their queue."""

import re
import signal
import threading

import psycopg2
import psycopg2.extras
import pytest

from tests.support.history import Event, Fault, Final, Receipt, check
from tests.support.servers import Reply, run_command, wait_until

CONFIG = """
database: "{dsn}"
sinks:
  hook: {{ type: http, url: "{url}/in" }}
  other: {{ type: http, url: "{url}/other" }}
  stream: {{ type: redis, url: "redis://127.0.0.1:1", command: stream }}
queues:
  orders:
    table: public.orders
    columns: {{ key: customer, type: kind, payload: body{columns} }}
    sink: hook
    after: archive
    retry: {{ base: 1ms, max: 1ms, attempts: 2 }}
{more}
"""
TABLE = """
create table public.orders (id bigserial primary key, customer text, kind text, body jsonb not null, extra jsonb);
create index on public.orders (customer, id);
insert into public.orders (customer, kind, body)
select 'k' || n % 5, case n % 2 when 0 then 'paid' else 'sent' end, jsonb_build_object('n', n) from generate_series(1, 40) n;
"""
MARK = "pgcourier-replayed"


@pytest.fixture
def shop(db):
    db.query(TABLE)
    db.let_relay_in("public.orders")
    return db


@pytest.fixture
def config(shop, http, tmp_path):
    """config(dsn) -> the path of a configuration."""
    path = tmp_path / "pgcourier.yaml"

    def write(dsn=shop.replay_dsn, columns="", more=""):
        path.write_text(CONFIG.format(dsn=dsn, url=http.url, columns=columns, more=more))
        return str(path)

    return write


@pytest.fixture
def archived(shop, config):
    """All 40 events are delivered, and in the archive."""
    done = run_command("run", "-c", config(shop.dsn), "--until-empty")
    assert done.returncode == 0, done.stderr
    assert shop.value("select count(*) from outbox.archive") == 40
    return config()


def replay(path, *arguments, **options):
    """What it says on standard error is left of it: not what the throwaway server is warned of."""
    done = run_command("replay", "-c", path, *arguments, **options)
    done.stderr = "".join(line for line in done.stderr.splitlines(True) if not re.search("table.warning .*sync(hronous_commit)? is off: ", line))
    return done


def replayed(http):
    """What came with the mark: (id, key), in the order in which it came."""
    return [(int(request.headers["event-id"]), request.headers.get("event-key")) for request in http.requests if MARK in request.headers]


def test_archived_events_are_sent_again_with_their_ids_and_a_header(archived, http, shop):
    done = replay(archived, "--queue", "orders", "--key", "k3")
    assert (done.returncode, done.stderr) == (0, ""), done
    assert done.stdout == "replay 1: 8 archived events of orders\nreplay 1: all 8 events sent\n"
    assert replayed(http) == [(n, "k3") for n in range(3, 41, 5)]
    request = http.requests[-1]
    assert request.headers[MARK] == "1" and request.json() == {"n": 38} and request.headers["event-type"] == "paid" and request.target == "/in"
    assert shop.value("select count(*) from outbox.archive") == 40  # stays, and is not archived once more
    assert shop.query("select queue, source, events, unsent, by, ended_at is not null from outbox.replay") == [
        ("orders", "archive", 8, 0, "shop_replayer", True)]
    assert shop.value("select to_regclass('outbox.replay_1')") is None and shop.value("select count(*) from outbox.parked") == 0


CHOICES = [
    (["--id", "7"], lambda n: n == 7),
    (["--id", "7,9", "-i", "11"], lambda n: n in (7, 9, 11)),
    (["--type", "paid"], lambda n: n % 2 == 0),
    (["--key", "k2", "--type", "sent"], lambda n: n % 5 == 2 and n % 2 == 1),
    (["--since", "2001-01-01", "--until", "2001-01-02"], lambda n: n <= 20),
    (["--since", "2001-01-02 00:00+00"], lambda n: n > 20),
    (["--until", "2001-01-02 00:00+00", "--id", "1,40"], lambda n: n == 1),
]


@pytest.mark.parametrize("arguments, chosen", CHOICES)
def test_events_are_chosen_by_id_key_type_and_time(archived, http, shop, arguments, chosen):
    shop.query("update outbox.archive set archived_at = case when event_id <= 20 then timestamptz '2001-01-01 12:00+00' else '2001-01-02 00:00+00' end")
    expected = [n for n in range(1, 41) if chosen(n)]
    counted = replay(archived, "--queue", "orders", *arguments, "--dry-run")
    assert counted.stdout == f"orders: {len(expected)} archived event{'s' * (len(expected) != 1)} would be sent again\n"
    assert counted.returncode == 0 and not replayed(http)
    done = replay(archived, "--queue", "orders", *arguments)
    assert done.returncode == 0, done
    assert sorted(replayed(http)) == [(n, f"k{n % 5}") for n in expected]
    for key in range(5):
        ids = [n for n, k in replayed(http) if k == f"k{key}"]
        assert ids == sorted(ids)


def whole(db):
    """Everything that a replay could have changed."""
    return [db.query(f"select * from {table} order by 1, 2") for table in ("outbox.replay", "outbox.archive", "outbox.dead", "outbox.parked")] + \
        db.query("select oid from pg_class where relnamespace = 'outbox'::regnamespace order by 1")


WRONG = [
    ([], 64, "say of which queue with --queue"),
    (["--queue", "orders"], 64, "say which events with --id, --key, --type, --since or --until"),
    (["--queue", "orders", "--id", "1,x"], 64, "--id 1,x: write whole numbers of 64 bits with commas between them"),
    (["--queue", "orders", "--id", ""], 64, "--id : write whole numbers"),
    (["--queue", "orders", "--id", "1,9223372036854775808"], 64, "--id 1,9223372036854775808: write whole numbers of 64 bits"),
    (["--queue", "orders", "--id", "1", "--rate", "0"], 64, "pgcourier replay: --rate 0: write how many events a second, 1/s to 1000000/s\nTry"),
    (["--queue", "orders", "--id", "1", "--rate", "0/s"], 64, "--rate 0/s: "),
    (["--queue", "orders", "--id", "1", "--rate", "5/m"], 64, "--rate 5/m: write how many events a second, 1/s to 1000000/s\n"),
    (["--queue", "orders", "--id", "1", "--from", "grave"], 64, '--from is archive or dead, not "grave"'),
    (["--queue", "orders", "--id", "1", "--resume", "7"], 64, "--resume stands alone, or with --rate"),
    (["--cancel", "7", "--rate", "5"], 64, "--cancel stands alone"),
    (["--resume", "x"], 64, "give the number of a replay"),
    (["--resume", "7"], 64, "there is none with the number 7 that is not whole; See select * from outbox.replay where ended_at is null"),
    (["--cancel", "7"], 64, "there is none with the number 7"),
    (["--queue", "order", "--id", "1"], 64, 'pgcourier.yaml has no queue "order"; did you mean "orders"? (its queues: orders)\n'),
    (["--queue", "orders", "--id", "1", "--to", "hoook"], 78, 'has no sink "hoook"; did you mean "hook"?'),
    (["--queue", "orders", "--id", "1", "--to", "stream"], 64, "replay: give a destination: redis sinks need one, and queue orders has none"),
    (["--queue", "orders", "--id", "1", "--log-level", "loud"], 64, '--log-level is error, warn, info or debug, not "loud"'),
    (["--queue", "orders", "--id", "1", "--destination", "{nothing}"], 78, 'has no column "nothing" (destination)'),
    (["--queue", "orders", "--since", "soon"], 64, 'pgcourier: replay: --since "soon" is no time: write one as PostgreSQL reads times, like "2026-01-31 12:00+01"\n'),
    (["--queue", "orders", "--since", "2001-01-01", "--until", "2026-13-01"], 64, 'replay: --until "2026-13-01" is no time: write one'),
    (["--queue", "orders", "--since", "2026-01-02", "--until", "2026-01-01"], 64, "since is the first moment that counts, until the first that does not"),
    (["--queue", "orders", "--id", "41"], 64, "replay: queue orders has no such archived event"),
    (["--queue", "orders", "--key", "k1", "--from", "dead"], 64, "replay: queue orders has no such dead event"),
    (["--queue", "orders", "--key", "k1", "extra"], 64, "Too many arguments"),
]


@pytest.mark.parametrize("arguments, code, text", WRONG)
def test_what_is_wrong_is_said_and_changes_nothing(archived, http, shop, arguments, code, text):
    before = whole(shop)
    done = replay(archived, *arguments)
    assert done.returncode == code and text in done.stderr and done.stdout == "", done
    assert whole(shop) == before and not replayed(http)


def test_a_commit_that_does_not_come_through_leaves_a_word_where_to_look(archived, http, shop):
    """It may have been made all the same, where only the answer did not come."""
    shop.psql("create function public.late() returns trigger language plpgsql as $$ begin raise 'too late'; end $$;"
              "create constraint trigger late after insert on outbox.replay initially deferred for each row execute function public.late()")
    done = replay(archived, "-q", "orders", "--id", "1")
    assert done.returncode != 0 and done.stdout == ""
    assert re.search(r"too late.*; look in outbox\.replay whether replay \d+ was made, and --resume or --cancel it$", done.stderr.strip()), done
    assert shop.query("select * from outbox.replay") == [] and not replayed(http)


# ---- by SQL ----

REFUSED = [
    ("'nobody', ids => '{1}'", "42704"),
    ("'', ids => '{1}'", "22023"),
    ("null, ids => '{1}'", "22023"),
    ("'orders'", "22023"),
    ("'orders', ids => '{}'", "22023"),
    ("'orders', 'grave', ids => '{1}'", "22023"),
    ("'orders', null, ids => '{1}'", "22023"),
    ("'orders', since => '2026-01-01', until => '2026-01-01'", "22023"),
    ("'orders', ids => '{1}', rate => 0", "22023"),
    ("'orders', type => 'paid', map => '{\"table\": \"public.orders\", \"id\": \"id\"}'", "22023"),
    ("'orders', ids => '{1}', map => '{\"id\": \"id\"}'", "22004"),
    ("'twice', ids => '{1}'", "22023"),
]


@pytest.fixture
def known(archived, shop):
    """To SQL, too."""
    shop.query("create table public.twice (id bigserial primary key); grant select, delete on public.orders, public.twice to shop_owner; set role shop_owner;"
               " select outbox.queue_set('orders', 'public.orders', key_column => 'customer', type_column => 'kind', payload_column => 'body', after => 'archive');"
               " select outbox.queue_set('twice', 'public.twice')")
    shop.query("insert into outbox.archive (queue, event_id, original) values ('twice', 1, '{}'), ('twice', 1, '{}')")
    return archived


@pytest.mark.parametrize("arguments, code", REFUSED)
def test_the_function_refuses_with_a_state_and_a_hint_and_changes_nothing(known, shop, arguments, code):
    before = whole(shop)
    with psycopg2.connect(shop.replay_dsn) as operator, pytest.raises(psycopg2.Error) as refused:
        operator.cursor().execute(f"select * from outbox.replay({arguments})")
    assert refused.value.pgcode == code and refused.value.diag.message_hint
    assert whole(shop) == before


def test_what_sql_has_chosen_is_sent_by_its_number(known, shop, http):
    def ask(arguments):
        with psycopg2.connect(shop.replay_dsn) as operator, operator.cursor() as cursor:
            cursor.execute(f"select * from outbox.replay({arguments})")
            return cursor.fetchone()

    assert ask("'orders', type => 'paid', dry_run => true") == (None, 20, None)
    mapped = '{"table": "public.orders", "id": "id", "key": "customer", "payload": "body"}'
    assert ask(f"'orders', ids => '{{41}}', map => '{mapped}'") == (None, 0, None)
    assert ask("'orders', ids => '{41}'") == (None, 0, None) and shop.value("select count(*) from outbox.replay") == 0
    number, events, command = ask("'orders', type => 'paid', key => 'k2', sink => 'other'")
    assert events == 4
    program, verb, config_option, _, *arguments = command.split()
    assert (program, verb, config_option, arguments) == ("pgcourier", "replay", "-c", ["--resume", str(number)])
    done = replay(known, *arguments)
    assert done.stdout == f"replay {number}: all 4 events sent\n" and not done.stderr
    assert replayed(http) == [(n, "k2") for n in (2, 12, 22, 32)] and http.requests[-1].target == "/other"


MAP = '{"table": "public.orders", "id": "id"}'


@pytest.mark.parametrize("arguments, text", [
    (f"'nobody', since => '2001-01-01', map => '{MAP}'", 'has no queue "nobody"'),
    ("'orders', ids => '{1}', sink => 'hok'", 'has no sink "hok"; did you mean "hook"?'),
])
def test_what_the_configuration_does_not_have_is_not_sent(known, shop, http, arguments, text):
    shop.query("insert into outbox.archive (queue, event_id, original) values ('nobody', 1, '{}')")
    shop.query(f"select * from outbox.replay({arguments})")
    done = replay(known, "--resume", "1")
    assert done.returncode == 78 and text in done.stderr and not replayed(http)
    assert replay(known, "--cancel", "1").returncode == 0


def test_a_right_that_is_missing_later_stops_it_with_a_word_how_to_go_on(known, shop, http):
    shop.query("select * from outbox.replay('orders', ids => '{1}'); revoke select on outbox.schedule from outbox_operator")
    done = replay(known, "--resume", "1", "--log-level", "error")
    assert done.returncode == 77 and "has no SELECT on outbox.schedule  fix: " in done.stderr and "to go on: pgcourier replay -c " in done.stderr
    shop.query("grant select on outbox.schedule to outbox_operator")
    assert replay(known, "--resume", "1").returncode == 0 and replayed(http) == [(1, "k1")]


def test_members_of_other_roles_may_not(known, shop):
    for dsn in (shop.dsn, shop.producer_dsn, shop.worker_dsn):
        with psycopg2.connect(dsn) as other, pytest.raises(psycopg2.errors.InsufficientPrivilege):
            other.cursor().execute("select * from outbox.replay('orders', ids => '{1}')")


# ---- where to, and what ----

def test_another_sink_and_another_destination(archived, http):
    assert replay(archived, "--queue", "orders", "--id", "4", "--to", "other", "--destination", "{kind}/{key}").returncode == 0
    assert replayed(http) == [(4, "k4")] and http.requests[-1].target == "/other/paid/k4"


@pytest.fixture
def buried(shop, http, config):
    """40 events, those of k1 refused for good."""
    http.rule(lambda request: request.headers["event-key"] == "k1" and MARK not in request.headers, Reply(422))
    done = run_command("run", "-c", config(shop.dsn), "--until-empty")
    assert done.returncode == 0 and shop.value("select count(*) from outbox.dead") == 8
    return config()


def test_a_dead_letter_that_is_delivered_is_one_no_more(buried, shop, http):
    done = replay(buried, "--queue", "orders", "--from", "dead", "--key", "k1", "--type", "paid")
    assert done.returncode == 0 and done.stdout.startswith("replay 1: 4 dead events of orders\n"), done
    assert replayed(http) == [(n, "k1") for n in (6, 16, 26, 36)]
    assert sorted(shop.query("select event_id from outbox.dead")) == [(n,) for n in (1, 11, 21, 31)]
    assert sorted(shop.query("select event_id, original ->> 'kind' from outbox.archive where key = 'k1'")) == [(n, "paid") for n in (6, 16, 26, 36)]


def test_a_dead_letter_that_went_elsewhere_stays_one(buried, shop, http):
    assert replay(buried, "--queue", "orders", "--from", "dead", "--id", "6", "--to", "other").returncode == 0
    assert replayed(http) == [(6, "k1")] and shop.value("select count(*) from outbox.dead") == 8


def test_a_dead_letter_that_is_refused_again_stays_one_and_keeps_its_key_back(buried, shop, http):
    http.rule(lambda request: request.headers["event-id"] == "16", Reply(422), times=1)
    done = replay(buried, "--queue", "orders", "--from", "dead", "--key", "k1")
    assert done.returncode == 75 and done.stdout == "replay 1: 8 dead events of orders\n"
    assert re.search(r"^pgcourier: replay 1: 5 of 8 events are left, behind 1 key closed by failures: .*422.*; to go on: pgcourier replay -c \S+ --resume 1$",
                     done.stderr, re.MULTILINE), done.stderr
    assert [n for n, _ in replayed(http)] == [1, 6, 11, 16] and shop.value("select count(*) from outbox.dead") == 5
    assert replay(buried, "--resume", "1").returncode == 0
    assert [n for n, _ in replayed(http)] == [1, 6, 11, 16, 16, 21, 26, 31, 36] and shop.value("select count(*) from outbox.dead") == 0


def test_a_dead_letter_of_a_queue_that_hands_on_is_for_dead_retry(buried, shop, config):
    path = config(more="    then: next\n  next: { table: outbox.events, sink: other }")
    done = replay(path, "--queue", "orders", "--from", "dead", "--id", "6")
    assert done.returncode == 64 and "Use `pgcourier dead retry`" in done.stderr and shop.value("select count(*) from outbox.dead") == 8


def test_what_is_sent_again_does_not_go_on_to_the_next_queue(archived, shop, http, config):
    """Nor is what the receiver answers looked at."""
    http.respond = lambda request: Reply(body=b"no JSON")
    path = config(more="    then: next\n    then_payload: response\n  next: { table: outbox.events, columns: { payload: payload }, sink: other }")
    done = replay(path, "--queue", "orders", "--key", "k3")
    assert done.returncode == 0, done
    assert len(replayed(http)) == 8 and shop.value("select count(*) from outbox.events") == 0


def test_what_is_cancelled_is_sent_no_more(buried, shop, http):
    http.rule(lambda request: request.headers["event-id"] == "11", Reply(422))
    assert replay(buried, "--queue", "orders", "--from", "dead", "--key", "k1").returncode == 75
    done = replay(buried, "--cancel", "1")
    assert done.stdout == "replay 1 is no more; 6 of its events were not sent\n" and done.returncode == 0
    assert shop.query("select unsent, ended_at is not null, to_regclass('outbox.replay_1') from outbox.replay") == [(6, True, None)]
    assert shop.value("select count(*) from outbox.dead") == 6 and shop.value("select count(*) from outbox.parked") == 0


@pytest.mark.parametrize("verb", ["retry", "drop"])
def test_a_dead_letter_that_was_retried_or_dropped_meanwhile_is_not_sent_again(buried, shop, http, config, verb):
    http.rule(lambda request: request.headers["event-id"] == "11" and MARK in request.headers, Reply(422), times=1)
    assert replay(buried, "--queue", "orders", "--from", "dead", "--key", "k1").returncode == 75
    assert [n for n, _ in replayed(http)] == [1, 6, 11]
    shop.let_operator_in("public.orders")
    for number in ("16", "26"):
        assert run_command("dead", verb, "--id", number, "-c", config(shop.operator_dsn)).returncode == 0
    assert run_command("run", "-c", config(shop.dsn), "--until-empty").returncode == 0
    done = replay(config(), "--resume", "1")
    assert done.returncode == 0 and done.stdout == "replay 1: all 6 events sent\nreplay 1: 2 not sent, dead letters no more\n", done
    assert [n for n, _ in replayed(http)] == [1, 6, 11, 11, 21, 31, 36]
    assert shop.query("select events, unsent from outbox.replay") == [(8, 0)]


def test_a_dead_letter_of_two_replays_is_sent_once(known, shop, http):
    shop.query("insert into outbox.dead (queue, event_id, key, type, reason, attempts, source_table, original)"
               " select queue, event_id, key, 'paid', 'no', 1, 'public.orders', original from outbox.archive where key = 'k1'")
    for _ in range(2):
        shop.query("select * from outbox.replay('orders', 'dead', key => 'k1')")
    assert replay(known, "--resume", "2").returncode == 0
    done = replay(known, "--resume", "1")
    assert done.returncode == 0 and done.stdout == "replay 1: all 0 events sent\nreplay 1: 8 not sent, dead letters no more\n", done
    assert len(replayed(http)) == 8


@pytest.mark.parametrize("was, expected", [(None, {}), ({}, {}), ({"a": "b", "n": 1}, {"a": "b", "n": "1"})])
def test_the_mark_comes_beside_the_events_own_headers(shop, config, http, was, expected):
    shop.query("update public.orders set extra = %s", (psycopg2.extras.Json(was) if was is not None else None,))
    assert run_command("run", "-c", config(shop.dsn, columns=", headers: extra"), "--until-empty").returncode == 0
    assert replay(config(columns=", headers: extra"), "--queue", "orders", "--id", "8").returncode == 0
    headers = http.requests[-1].headers
    assert headers[MARK] == "1" and {name: headers.get(name) for name in expected} == expected
