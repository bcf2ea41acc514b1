"""A relay's statements are planned once, when the table may be all but empty, and run when it is not."""

import pytest

from tests.support.servers import wait_until

WARM_UPS = 10  # PostgreSQL keeps a plan for good after the fifth run
BURST = 20_000
INDEXES = {"on the key": "create index on events (order_id)", "on key and id": "create index on events (order_id, id)"}


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("analyzed", [True, False], ids=["analyzed", "new"])
def test_plan_that_was_made_for_an_empty_table_does_not_read_a_full_one_whole(db, relay, tmp_path, index, analyzed):
    db.psql("create table events (id bigserial primary key, order_id bigint, status text not null, "
            "created_at timestamptz not null default now()) with (autovacuum_enabled = off); "
            f"create index on events (created_at); {INDEXES[index]};" + ("vacuum analyze events" if analyzed else ""))
    path = tmp_path / "events.jsonl"
    one = relay(f'database: "{db.dsn}"\nsinks:\n  log: {{ type: file, path: "{path}", sync: false }}\nqueues:\n'
                "  orders: { table: public.events, columns: { key: order_id, type: status }, sink: log }\n")

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


def rows_read(db):
    """Rows read by sequential scans, and entries read from the indexes."""
    return db.query("select seq_tup_read, (select sum(i.idx_tup_read)::bigint from pg_stat_user_indexes i where i.relid = t.relid) "
                    "from pg_stat_user_tables t where t.relid = 'public.events'::regclass")[0]
