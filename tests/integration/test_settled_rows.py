"""Which rows leave a table: those that were delivered, wherever they have gone meanwhile, and no others."""

import pytest

from tests.support.servers import Reply, wait_until

CONFIG = """
database: "{db}"
sinks:
  web: {{ type: http, url: "{url}" }}
queues:
  orders: {{ table: public.events, columns: {{ key: order_id, type: status }}, sink: web{rest} }}
"""


def ids(db):
    return [row[0] for row in db.query("select id from events order by id")]


def test_rows_at_the_same_place_in_another_partition_stay(db, relay, http):
    db.psql("create table events (id bigserial primary key, order_id bigint, status text not null) partition by range (id);"
            "create index on events (order_id, id);"
            "create table low partition of events for values from (1) to (11);"
            "create table high partition of events for values from (11) to (21);"
            "insert into events (order_id, status) select n, 'new' from generate_series(1, 20) n")
    db.let_relay_in("public.events")
    one = relay(CONFIG.format(db=db.dsn, url=http.url, rest=', where: "id <= 10"'), until_empty=True)
    assert one.wait() == 0
    assert ids(db) == list(range(11, 21))
    assert len(http.requests) == 10


INSERT = "insert into events (order_id, status) values (1, 'new'), (2, 'new')"
EMPTIED = f"{INSERT}; delete from events;"  # and vacuumed: the planner takes it for empty, and rows are taken by their place


@pytest.mark.parametrize("before", ["", EMPTIED])
@pytest.mark.parametrize("rest", ["", ", after: archive", ", ordering: lease"])
def test_row_that_is_updated_while_it_is_settled_leaves(db, relay, http, before, rest):
    db.psql("create table events (id bigserial primary key, order_id bigint, status text not null);"
            f"create index on events (order_id, id); {before}")
    db.psql("vacuum (truncate false) events")
    db.psql(INSERT)
    db.let_relay_in("public.events")
    application = db.connect(autocommit=False)

    def update(request):
        application.cursor().execute("update events set status = 'seen'")
        return Reply(200)

    http.respond = update
    one = relay(CONFIG.format(db=db.dsn, url=http.url, rest=rest))
    wait_until(lambda: db.value("select count(*) > 0 from pg_stat_activity where application_name = 'pgcourier'"
                                " and datname = current_database() and wait_event_type = 'Lock'"), what="the relay to wait for the row")
    application.commit()
    application.close()
    wait_until(lambda: ids(db) == [], what="the rows to leave")
    assert one.stop() == 0
    assert len(http.requests) == 2
    assert not one.logged("settle.missing") and (before or not one.logged("settle"))
