"""A relay's statements are planned once, when the table may be all but empty, and run when it is not."""

import pytest

from tests.support.http_receiver import Reply
from tests.support.servers import wait_until

WARM_UPS = 10  # PostgreSQL keeps a plan for good after the fifth run
BURST = 20_000
INDEXES = {"on the key": "create index on events (order_id)", "on key and id": "create index on events (order_id, id)"}

# Of a table that vacuum found empty and could not make shorter, because an old snapshot or another session was in the way,
# the planner believes that there are no rows, whatever comes, and then any index may look like the shortest way to them.
EMPTIED = ("insert into events (order_id, status) select n % 2000, 'old' from generate_series(1, 50000) n; delete from events;"
           " vacuum (truncate off) events; {index}; analyze events;")
STATES = {"new": "{index}", "analyzed": "{index}; vacuum analyze events", "emptied": EMPTIED}
CASES = [*((index, state, "delete") for index in INDEXES for state in ("new", "analyzed")),
         ("on key and id", "emptied", "delete"), ("on key and id", "emptied", "archive")]


@pytest.mark.parametrize("index, state, after", CASES, ids=map("-".join, CASES))
def test_plan_that_was_made_for_an_empty_table_does_not_read_a_full_one_whole(db, relay, tmp_path, index, state, after):
    db.psql("create table events (id bigserial primary key, order_id bigint, status text not null, "
            "created_at timestamptz not null default now()) with (autovacuum_enabled = off); "
            f"create index on events (created_at); {STATES[state].format(index=INDEXES[index])}")
    db.let_relay_in("public.events")
    path = tmp_path / "events.jsonl"
    one = relay(f'database: "{db.dsn}"\nsinks:\n  log: {{ type: file, path: "{path}", sync: false }}\nqueues:\n'
                "  orders: { table: public.events, columns: { key: order_id, type: status }, sink: log,"
                f" after: {after} }}\n")

    def arrived(count):
        return path.exists() and path.read_bytes().count(b"\n") == count

    for number in range(1, WARM_UPS + 1):
        db.query("insert into events (order_id, status) values (1, 'new')")
        wait_until(lambda count=number: arrived(count), what="an event to arrive")
    before = rows_read(db)
    db.query("insert into events (order_id, status) select n %% 2000, 'new' from generate_series(1, %s) n", (BURST,))
    wait_until(lambda: arrived(WARM_UPS + BURST), 60, "the burst to arrive")
    assert one.stop() == 0
    wait_until(lambda: db.value("select count(*) = 0 from pg_stat_activity where application_name like 'pgcourier%'"),
               what="the relay's sessions to end, which is when their counts are complete")
    sequential, by_index = (after - then for after, then in zip(rows_read(db), before))
    assert sequential < BURST
    assert by_index < 20 * BURST
    # Entries that do not match are not counted there, but where they are is.
    assert index_blocks(db) < 50 * BURST


@pytest.mark.parametrize("analyzed", [pytest.param(True, marks=pytest.mark.deep), False], ids=["analyzed", "new"])
def test_plan_that_was_made_for_no_closed_key_looks_each_key_up_among_many(db, relay, http, tmp_path, analyzed):
    db.psql("create table events (id bigserial primary key, order_id text collate \"C\", status text not null)"
            " with (autovacuum_enabled = off); create index on events (order_id, id);"
            "alter table outbox.parked set (autovacuum_enabled = off);" + ("vacuum analyze outbox.parked" if analyzed else ""))
    db.let_relay_in("public.events")
    one = relay(f'database: "{db.dsn}"\nsinks:\n  web: {{ type: http, url: "{http.url}" }}\nqueues:\n'
                "  orders: { table: public.events, columns: { key: order_id, type: status }, sink: web,"
                " retry: { base: 1ms, max: 1ms } }\n")

    def burst(keys):
        db.query("insert into events (order_id, status) select n, 'new' from generate_series(1, %s) n", (keys,))
        wait_until(lambda: db.value("select not exists (select from events) and not exists (select from outbox.parked"
                                    " where next_at < 'infinity')"), 60, "the burst to be delivered")

    for _ in range(WARM_UPS):
        http.rule(lambda _: True, Reply(503), times=1)
        burst(1)
    one.pause()  # a claim that looks for one entry walks over all that are being inserted
    db.query("insert into outbox.parked (queue, key, event_id, next_at)"
             " select 'orders', 'closed' || n, -n, 'infinity' from generate_series(1, %s) n", (BURST,))
    one.resume()
    burst(500)
    assert one.stop() == 0
    wait_until(lambda: db.value("select count(*) = 0 from pg_stat_activity where application_name like 'pgcourier%'"),
               what="the relay's sessions to end, which is when their counts are complete")
    assert rows_read(db, "outbox.parked")[1] < BURST


def index_blocks(db):
    return db.value("select (idx_blks_hit + idx_blks_read)::bigint from pg_statio_user_tables where relid = 'public.events'::regclass")


def rows_read(db, table="public.events"):
    """Rows read by sequential scans, and entries read from the indexes."""
    return db.query("select seq_tup_read, (select sum(i.idx_tup_read)::bigint from pg_stat_user_indexes i where i.relid = t.relid) "
                    "from pg_stat_user_tables t where t.relid = %s::regclass", (table,))[0]
