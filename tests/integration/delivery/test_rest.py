"""A relay with nothing to do rests: it sends nothing, and whatever becomes its event wakes it.

Looks at the table are 20 s apart here: what arrives within WAKE_S was announced."""

import datetime
import time

import pytest

from tests.support import servers
from tests.support.journal import read_lines
from tests.support.servers import Reply, wait_until
from tests.support.shop import Shop
from tests.support.statement_log import StatementLog
from tests.support.targets import FileTarget

WAKE_S = 2
SILENT_S = 4
SELDOM = {"poll": "{ max: 20s }"}
DEBUG = ("--log-level=debug",)
OUTBOX = """
database: "{dsn}"
sinks:
  out: {{ type: file, path: "{out}" }}
queues:
  mail: {{ table: outbox.events, columns: {{ key: aggregateid, not_before: not_before }}, sink: out, poll: {{ max: 20s }}, {more} }}
"""


@pytest.fixture
def shop(db):
    shop = Shop(db)
    db.query("select outbox.install_wake('public.events')")
    return shop


@pytest.fixture
def out(tmp_path):
    return FileTarget(tmp_path / "out.jsonl")


def start(relay, shop, out, env=None, **options):
    return relay(shop.config(out.sink(), **{**SELDOM, **options}), arguments=DEBUG, env=env)


def rests(one, times=1, timeout_s=15):
    wait_until(lambda: len(one.logged("msg=queue.rest ")) >= times, timeout_s, f"the queue to rest {times} times")


def woken(one, reason, times=1):
    wait_until(lambda: len(one.logged(f"msg=queue.wake .*reason=\"?{reason}")) >= times, WAKE_S, f"the queue to be woken: {reason}")


def stays_awake(one, cause):
    wait_until(lambda: one.logged(f"msg=queue.stays_awake .*{cause}"), 15, f"the queue to stay awake: {cause}")
    assert not one.logged("msg=queue.rest ")


def is_delivered(shop, within_s=WAKE_S):
    wait_until(lambda: shop.left() == 0, within_s, "the events to be delivered")


@pytest.mark.parametrize("how", [{}, {"ordering": "unordered", "locks": "advisory"}, {"ordering": "lease"}], ids=str)
def test_an_insert_wakes_a_queue_that_rests(relay, shop, out, how):
    one = start(relay, shop, out, **how)
    rests(one)
    for times in (1, 2):
        shop.add(1, 1)
        is_delivered(shop)
        woken(one, "notified", times)
        rests(one, times + 1)
    assert one.stop() == 0
    shop.check(out.receipts())


def test_a_queue_that_rests_sends_nothing(relay, shop, out):
    log = StatementLog(shop.db)
    one = start(relay, shop, out, archive_retention="0", after="archive")
    rests(one)
    log.forget()
    time.sleep(SILENT_S)
    assert log.sessions("pgcourier") == {}
    assert one.stop() == 0


def add_at_a_rate(shop, count, pause_s):
    for _ in range(count):
        shop.add(1, 1)
        time.sleep(pause_s)


def test_of_a_few_events_a_second_each_is_announced(relay, shop, out):
    listener = shop.db.connect()
    listener.cursor().execute("listen pgcourier")
    one = start(relay, shop, out)
    rests(one)
    add_at_a_rate(shop, 12, 0.15)
    is_delivered(shop)
    listener.poll()
    assert len(listener.notifies) == 12  # its locks are held on
    rests(one, 5)
    shop.check(out.receipts())
    listener.close()


def test_a_queue_that_becomes_busy_is_notified_no_more(relay, shop, out):
    listener = shop.db.connect()
    listener.cursor().execute("listen pgcourier")
    one = start(relay, shop, out)
    rests(one)
    add_at_a_rate(shop, 300, 0.005)
    is_delivered(shop)
    listener.poll()
    assert 1 <= len(listener.notifies) < 200
    add_at_a_rate(shop, 100, 0.005)
    is_delivered(shop)
    listener.poll()
    assert len(listener.notifies) < 200
    shop.check(out.receipts())
    listener.close()


def test_nobody_notifies_while_the_relay_is_awake(relay, shop, out):
    listener = shop.db.connect()
    listener.cursor().execute("listen pgcourier")
    one = start(relay, shop, out)
    add_at_a_rate(shop, 60, 0.01)
    listener.poll()
    assert not listener.notifies
    rests(one)
    shop.add(1, 1)
    is_delivered(shop)
    listener.poll()
    assert [notice.payload for notice in listener.notifies] == [f"t{shop.db.value(OID)}"]
    listener.close()


OID = "select 'public.events'::regclass::oid::bigint"
LOCKS = ("select count(*) from pg_locks where locktype = 'advisory' and classid in (2476684755, 1189806900)"
         " and database = (select oid from pg_database where datname = current_database())")


def test_without_the_trigger_the_table_is_polled(relay, shop, out):
    shop.db.query("select outbox.uninstall_wake('public.events')")
    one = start(relay, shop, out, poll="{ max: 1s }")
    stays_awake(one, "no trigger outbox_wake that is enabled always")
    shop.add(1, 1)
    is_delivered(shop)


@pytest.mark.parametrize("change", [
    "alter table public.events enable trigger outbox_wake",
    "alter table public.events disable trigger outbox_wake",
    "create table public.more () inherits (public.events)"])
def test_a_table_with_a_way_past_its_trigger_is_polled(relay, shop, out, change):
    shop.db.psql(change)
    one = start(relay, shop, out)
    stays_awake(one, "(no trigger outbox_wake|rows come into the table)")


@pytest.mark.parametrize("where, may_rest", [
    ("status <> 'late'", True), ("lower(status) in ('step', 'paid')", True), ("created_at <= now()", False),
    ("created_at < current_timestamp", False), ("exists (select 1 from public.orders o where o.id = order_id)", False)])
def test_a_condition_that_time_may_change_is_asked_again_and_again(relay, shop, out, where, may_rest):
    shop.db.psql("grant select on public.orders to outbox_relay")
    one = start(relay, shop, out, where=f'"{where}"')
    if may_rest:
        rests(one)
        shop.add(1, 1)
        is_delivered(shop)
    else:
        stays_awake(one, "the condition may depend on more than the row")


def test_an_update_that_makes_an_event_the_queues_wakes_it(relay, shop, out):
    shop.add(1, 1)
    shop.db.query("update public.events set status = 'draft'")
    one = start(relay, shop, out, where='"status <> \'draft\'"', poll="{ max: 1s }")
    rests(one)
    shop.db.query("update public.events set status = 'step'")
    woken(one, "notified")
    is_delivered(shop, 20)  # where an old row lies, the slow look goes
    rests(one, 2)


def test_a_partition_wakes_the_queue_of_its_table(relay, db, out):
    db.psql("create table public.parts (id bigserial, k bigint, primary key (id)) partition by range (id);"
            "create table public.part1 partition of public.parts for values from (0) to (1000);"
            "create index on public.parts (k, id); select outbox.install_wake('public.parts')")
    db.psql("create table public.part2 partition of public.parts for values from (1000) to (2000)")
    db.let_relay_in("public.parts")
    one = relay(f'database: "{db.dsn}"\nsinks:\n  out: {{ {out.sink()} }}\nqueues:\n'
                "  q: { table: public.parts, columns: { key: k }, sink: out, poll: { max: 20s } }\n", arguments=DEBUG)
    rests(one)
    for times, insert in enumerate(["parts (k)", "part1 (k)", "part2 (id, k)"], 2):
        db.query(f"insert into public.{insert} values ({'1001, ' if 'id' in insert else ''}1)")
        wait_until(lambda: db.value("select count(*) from public.parts") == 0, WAKE_S)
        rests(one, times)


# ---- what is committed late ----


def test_a_transaction_that_wrote_before_the_relay_rested_is_waited_for(relay, shop, out):
    late = shop.db.connect(autocommit=False)
    late.cursor().execute("insert into public.events (order_id, status) values (1, 'step')")
    one = start(relay, shop, out, poll="{ max: 1s }")
    wait_until(lambda: shop.db.value(LOCKS) == 2, 15, "the relay to have its locks")
    time.sleep(1)  # it would rest within some milliseconds
    assert not one.logged("msg=queue.rest "), "somebody may still commit an event"
    late.commit()
    is_delivered(shop)
    rests(one)
    late.close()


def test_a_transaction_that_begins_to_write_meanwhile_does_not_keep_the_relay_awake(relay, shop, out):
    """It has asked, and will notify."""
    late = shop.db.connect(autocommit=False)
    one = start(relay, shop, out)
    rests(one)
    late.cursor().execute("insert into public.events (order_id, status) values (1, 'step')")
    late.commit()
    is_delivered(shop)
    late.close()


def test_an_old_snapshot_wakes_the_relay(relay, shop, out):
    old = shop.db.connect(autocommit=False)
    cursor = old.cursor()
    cursor.execute("set transaction isolation level repeatable read")
    cursor.execute("select count(*) from public.events")
    one = start(relay, shop, out)
    rests(one)
    cursor.execute("insert into public.events (order_id, status) values (1, 'step')")
    old.commit()
    is_delivered(shop)
    old.close()


def test_what_is_rolled_back_wakes_nobody(relay, shop, out):
    one = start(relay, shop, out)
    rests(one)
    listener = shop.db.connect()
    listener.cursor().execute("listen pgcourier")
    shop.insert([1], commit=False)
    shop.db.query("notify pgcourier, 'last'")  # notifications come in the order of commits

    def payloads():
        listener.poll()
        return [notice.payload for notice in listener.notifies]

    wait_until(payloads, what="the notification behind it")
    assert payloads() == ["last"] and not one.logged("msg=queue.wake ")
    listener.close()


# ---- what becomes due ----


def mail(relay, db, tmp_path, more="after: delete"):
    return relay(OUTBOX.format(dsn=db.dsn, out=tmp_path / "mail.jsonl", more=more), arguments=DEBUG)


def has_mail(tmp_path, count, within_s=WAKE_S):
    wait_until(lambda: (tmp_path / "mail.jsonl").exists() and len(list(read_lines(tmp_path / "mail.jsonl"))) >= count, within_s, "the mail")


@pytest.mark.parametrize("delayed", ["hold", "pass"])
def test_an_event_that_becomes_due_is_delivered_in_time(relay, db, tmp_path, delayed):
    one = mail(relay, db, tmp_path, f"delayed: {delayed}")
    rests(one)
    db.query("select outbox.publish('k', 't', '{}', not_before => now() + interval '5 s')")
    due_at = time.monotonic() + 5
    rests(one, 2)
    assert time.monotonic() < due_at, "it rests until then"
    has_mail(tmp_path, 1, 5 + WAKE_S)
    assert -0.1 < time.monotonic() - due_at < 1
    woken(one, "due")


def test_a_retry_is_made_in_time(relay, shop, http):
    http.rule(lambda request: True, Reply(status=500), times=1)
    one = relay(shop.config(f"type: http, url: \"{http.url}\"", retry="{ base: 20s, max: 20s }", **SELDOM), arguments=DEBUG)
    shop.add(1, 1)
    line = wait_until(lambda: one.logged("msg=delivery.retry"))[0]
    shop.db.query("update outbox.parked set next_at = now() + interval '6 s'")
    rests(one)
    assert shop.left() == 1, line
    is_delivered(shop, 6 + WAKE_S)
    woken(one, "due")


def test_a_pause_and_its_end_wake_the_queue(relay, shop, out):
    one = start(relay, shop, out)
    rests(one)
    shop.db.query("select outbox.pause('shop')")
    wait_until(lambda: one.logged("msg=queue.paused"), WAKE_S)
    shop.add(3, 3)
    rests(one, 2)
    assert shop.left() == 3
    shop.db.query("select outbox.resume('shop')")
    is_delivered(shop)


def test_a_key_that_is_resumed_wakes_the_queue(relay, shop, out):
    one = start(relay, shop, out)
    rests(one)
    shop.db.query("select outbox.pause('shop', '1')")
    shop.db.query("insert into public.events (order_id, status) values (1, 'step')")
    wait_until(lambda: len(one.logged("msg=queue.wake ")) >= 1)
    rests(one, 1 + len(one.logged("msg=queue.wake ")))
    assert shop.left() == 1
    shop.db.query("select outbox.resume('shop', '1')")
    is_delivered(shop)


def test_a_schedule_wakes_the_queue(relay, db, tmp_path):
    one = mail(relay, db, tmp_path)
    rests(one)
    db.query("select outbox.queue_set('mail')")
    db.query("select outbox.schedule_set('news', 'mail', every => '4 s', type => 't')")
    has_mail(tmp_path, 2, 10 + WAKE_S)
    woken(one, "due")


def test_the_edges_of_a_window_wake_the_queue(relay, shop, out):
    """It rests until one: then it finds out whether the window is open."""
    now = datetime.datetime.now(datetime.timezone.utc)
    opens = now + datetime.timedelta(minutes=2 if now.second > 40 else 1)
    one = start(relay, shop, out, window=f'"{opens:%H:%M}-{opens + datetime.timedelta(hours=2):%H:%M}"', window_zone="UTC")
    shop.add(1, 1)
    rests(one)
    left_s = (opens.replace(second=0, microsecond=0) - now).total_seconds()
    until_ms = int(one.logged("msg=queue.rest ")[0].split("until_ms=")[1])
    assert left_s - 10 < until_ms / 1000 < left_s
    is_delivered(shop, left_s + WAKE_S)


# ---- what rest cannot be had with ----


def test_prepared_transactions_keep_the_relay_awake(relay, out):
    """One that has notified could not be prepared."""
    with servers.Postgres({"max_prepared_transactions": 5}) as server:
        db = server.create_database()
        assert servers.run_command("migrate", "-d", db.owner_dsn).returncode == 0
        db.create_logins()
        shop = Shop(db)
        db.query("select outbox.install_wake('public.events')")
        stays_awake(start(relay, shop, out), "max_prepared_transactions")


def test_another_database_to_listen_in_keeps_the_relay_awake(relay, shop, out, pg):
    one = start(relay, shop, out, top=f'listen_database: "{pg.dsn("postgres")}"')
    stays_awake(one, "listen_database is another database")


def test_behind_a_pooler_a_relay_rests_with_a_direct_connection_only(relay, shop, out, pg):
    with servers.PgBouncer(pg) as pooler:
        one = start(relay, shop, out, database=pooler.dsn(shop.db.name), poll="{ max: 1s }")
        stays_awake(one, "a pooler shares the connection")
        shop.add(1, 1)
        is_delivered(shop)
        assert one.stop() == 0
        two = start(relay, shop, out, database=pooler.dsn(shop.db.name), top=f'listen_database: "{shop.db.dsn}"')
        rests(two)
        shop.add(1, 1)
        is_delivered(shop)
        woken(two, "notified")


def test_without_a_waking_connection_polling_goes_on(relay, shop, out):
    one = start(relay, shop, out, poll="{ max: 500ms }", top='listen_database: "host=127.0.0.1 port=1 dbname=nowhere"')
    wait_until(lambda: one.logged("database.unreachable.*waking"))
    for _ in range(3):
        time.sleep(1)
        shop.add(1, 1)
        is_delivered(shop)
    assert len(one.logged("database.unreachable")) == 1, "said once"
    assert not one.logged("msg=queue.rest ")
    assert one.stop() == 0
    shop.check(out.receipts())


def test_a_trigger_that_is_dropped_meanwhile_is_missed_at_the_next_look(relay, shop, out):
    """Which is made once an hour; here after a second."""
    one = start(relay, shop, out, env={"PGCOURIER_FAULT": "rest.until:1:errors"}, poll="{ max: 1s }")
    rests(one)
    shop.db.psql("drop trigger outbox_wake on public.events")
    shop.add(1, 1)
    is_delivered(shop, 3)
    stayed = len(one.logged("msg=queue.rest "))
    time.sleep(SILENT_S)
    assert len(one.logged("msg=queue.rest ")) <= stayed + 1


LOOKS = {"PGCOURIER_FAULT": "rest.check:1:errors"}  # each second instead of each minute
EVENTS_LIKE = ("create table public.events (id bigserial primary key, order_id bigint, status text not null, payload bytea,"
               " created_at timestamptz not null default now()); create index on public.events (order_id, id); select outbox.install_wake('public.events');")
CHANGES = {
    "trigger_disabled": "alter table public.events disable trigger outbox_wake",
    "table_replaced": "begin; alter table public.events rename to old_events; alter sequence public.events_id_seq rename to old_seq;"
                      "alter index public.events_pkey rename to old_pkey;" + EVENTS_LIKE + "commit",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_after_which_nobody_would_wake_the_relay_is_noticed(relay, shop, out, change):
    one = start(relay, shop, out, env=LOOKS, poll="{ max: 1s }")
    rests(one)
    shop.db.psql(CHANGES[change])
    shop.db.let_relay_in("public.events")
    shop.db.query("insert into public.events (order_id, status) values (1, 'step')")
    is_delivered(shop, 5)
    woken(one, "may rest no longer")


def test_a_partition_that_comes_with_rows_wakes_the_queue(relay, db, out):
    db.psql("create table public.parts (id bigserial primary key, k bigint) partition by range (id);"
            "create table public.part1 partition of public.parts for values from (0) to (1000);"
            "create index on public.parts (k, id); select outbox.install_wake('public.parts')")
    db.let_relay_in("public.parts")
    one = relay(f'database: "{db.dsn}"\nsinks:\n  out: {{ {out.sink()} }}\nqueues:\n'
                "  q: { table: public.parts, columns: { key: k }, sink: out, destination: parts, poll: { max: 1s } }\n",
                arguments=DEBUG, env=LOOKS)
    rests(one)
    db.psql("create table public.part2 (id bigint not null, k bigint); insert into public.part2 values (1500, 1);"
            "alter table public.parts attach partition public.part2 for values from (1000) to (2000)")
    wait_until(lambda: db.value("select count(*) from public.parts") == 0, 5, "its row to be delivered")
    woken(one, "may rest no longer")


@pytest.mark.parametrize("where", ['public."IsReady"(e.id)', "e.id operator(public.@@@) 1"])
def test_a_condition_that_depends_on_more_than_the_row_keeps_the_queue_awake(relay, shop, out, where):
    shop.db.psql('create function public."IsReady"(bigint) returns boolean stable language sql return true;'
                 "create function public.looks(bigint, integer) returns boolean stable language sql return true;"
                 "create operator public.@@@ (leftarg = bigint, rightarg = integer, function = public.looks)")
    one = start(relay, shop, out, where=f"'{where}'")
    stays_awake(one, "the condition may depend on more than the row")


# ---- several ----


def test_a_busy_queue_leaves_another_one_at_rest(relay, shop, out, tmp_path):
    db = shop.db
    db.psql("create table public.quiet (id bigserial primary key, k bigint); create index on public.quiet (k, id);"
            "select outbox.install_wake('public.quiet')")
    db.let_relay_in("public.quiet")
    config = shop.config(out.sink(), **SELDOM) + \
        "  quiet: { table: public.quiet, columns: { key: k }, sink: out, poll: { max: 20s } }\n"
    one = relay(config, arguments=DEBUG)
    wait_until(lambda: one.logged("msg=queue.rest queue=quiet"), 15)
    for _ in range(40):
        shop.add(5, 5)
        time.sleep(0.05)
    is_delivered(shop)
    assert not one.logged("msg=queue.wake queue=quiet")
    db.query("insert into public.quiet (k) values (1)")
    wait_until(lambda: db.value("select count(*) from public.quiet") == 0, WAKE_S)


def test_all_relays_that_rest_are_woken(relay, shop, out):
    several = [start(relay, shop, out) for _ in range(3)]
    for one in several:
        rests(one)
    shop.add(1, 1)
    is_delivered(shop)
    for one in several:
        woken(one, "notified")
        rests(one, 2)
    for one in several:
        assert one.stop() == 0
    assert shop.db.value(LOCKS) == 0


def test_what_one_queue_hands_on_wakes_the_next(relay, db, tmp_path):
    db.psql("create table public.next (id bigserial primary key, key text, payload jsonb); create index on public.next (key, id);"
            "select outbox.install_wake('public.next')")
    db.let_relay_in("public.next")
    db.let_hand_on("public.next")
    out = tmp_path / "mail.jsonl"
    config = OUTBOX.format(dsn=db.dsn, out=out, more="then: last").replace("columns: { key", "columns: { payload: payload, key") + \
        "  last: { table: public.next, columns: { key: key, payload: payload }, sink: out, poll: { max: 20s } }\n"
    one = relay(config, arguments=DEBUG)
    wait_until(lambda: one.logged("msg=queue.rest queue=last") and one.logged("msg=queue.rest queue=mail"), 15)
    db.query("select outbox.publish('k', 't', '{}')")
    has_mail(tmp_path, 2)
