"""An event that somebody inserts with an id that was long settled: a restore, a copy from another table."""

from tests.support.servers import wait_until

CONFIG = """
database: "{dsn}"
sinks: {{ none: {{ type: discard }} }}
queues:
  orders: {{ table: public.t, columns: {{ key: k }}, sink: none }}
"""


def test_an_event_with_an_old_id_is_delivered_by_a_running_relay(db, relay):
    db.query("create table public.t (id bigserial primary key, k text); create index on public.t (k, id)")
    db.let_relay_in("public.t")
    db.query("insert into public.t (k) select 'k' || i % 10 from generate_series(1, 1000) i")
    left = "select count(*) from public.t"
    running = relay(CONFIG.format(dsn=db.dsn), arguments=["--log-level=debug"])
    wait_until(lambda: db.value(left) == 0, 20, "the table to be empty")
    claims = len(running.logged("claim.done"))
    wait_until(lambda: len(running.logged("claim.done")) > claims + 5, 20, "the position marks to rise")
    db.query("insert into public.t (id, k) values (5, 'k1'), (6, null), (7, 'k1')")
    wait_until(lambda: db.value(left) == 0, 20, "the old ids to be delivered")
    assert running.stop() == 0
