"""Which rows leave a table: those that were delivered, wherever they have gone meanwhile, and no others."""

from contextlib import closing

import psycopg2
import pytest

from tests.support.servers import Reply, wait_until
from tests.support.sql_files import rendered

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
EMPTIED = f"{INSERT}; delete from events;"  # and vacuumed: the planner takes it for empty


def settlements_gone_wrong(relay, blind):
    """By its log. Where the planner is blind, a row that is updated at that moment may stay, and is settled once more."""
    return [line for line in relay.logged("settle") if not blind or "updated just now" not in line]


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
    assert not settlements_gone_wrong(one, blind=before)


@pytest.mark.parametrize("before", ["", EMPTIED])
def test_row_that_is_updated_while_it_is_buried_leaves(db, relay, http, before):
    db.psql("create table events (id bigserial primary key, order_id bigint, status text not null);"
            f"create index on events (order_id, id); {before}")
    db.psql("vacuum (truncate false) events")
    db.psql(INSERT)
    db.let_relay_in("public.events")
    with closing(db.connect(autocommit=False)) as application:
        def update(request):
            application.cursor().execute("update events set status = 'seen'")
            return Reply(422)

        http.respond = update
        one = relay(CONFIG.format(db=db.dsn, url=http.url, rest=", retry: { attempts: 1 }"))
        wait_until(lambda: db.value("select count(*) > 0 from pg_stat_activity where application_name = 'pgcourier'"
                                    " and datname = current_database() and wait_event_type = 'Lock'"), what="the relay to wait for the row")
        application.commit()
    wait_until(lambda: ids(db) == [], what="the rows to leave")
    assert one.stop() == 0
    assert len(http.requests) == 2
    assert db.query("select key, attempts, original->>'status' from outbox.dead order by event_id") == [("1", 1, "seen"), ("2", 1, "seen")]
    assert not settlements_gone_wrong(one, blind=before)


@pytest.mark.parametrize("before", ["", EMPTIED])
@pytest.mark.parametrize("rest", ["", ", after: archive", ", ordering: lease"])
def test_row_that_was_updated_since_it_was_read_leaves(db, relay, http, before, rest):
    db.psql("create table events (id bigserial primary key, order_id bigint, status text not null);"
            f"create index on events (order_id, id); {before}")
    db.psql("vacuum (truncate false) events")
    db.psql(INSERT)
    db.let_relay_in("public.events")

    def update(request):
        db.query("update events set status = 'seen'")
        return Reply(200)

    http.respond = update
    one = relay(CONFIG.format(db=db.dsn, url=http.url, rest=rest), until_empty=True)
    assert one.wait() == 0
    assert ids(db) == [] and len(http.requests) == 2
    assert not settlements_gone_wrong(one, blind=before)


@pytest.mark.parametrize("rest", ["", ", after: archive", ", ordering: lease"])
def test_row_that_takes_the_place_of_one_under_way_stays_until_it_is_delivered(db, relay, http, rest):
    """Somebody deletes what is under way, vacuum frees its place, and a new event comes to be there."""
    db.psql("create table events (id bigserial primary key, order_id bigint, status text not null) with (autovacuum_enabled = off);"
            "create index on events (order_id, id);"
            "insert into events (order_id, status) select n, 'new' from generate_series(1, 64) n")
    db.let_relay_in("public.events")
    places = "select ctid from events order by ctid"
    before, new = db.query(places), []

    def take_places():
        db.psql("vacuum events")
        with closing(db.connect(autocommit=False)) as session:
            run = session.cursor()
            run.execute("insert into events (order_id, status) select 100 + n, 'new' from generate_series(1, 63) n returning id")
            new[:] = [row[0] for row in run]
            run.execute(places)
            taken = run.fetchall() == before
            if taken:
                session.commit()
        return taken

    def answer(request):
        if not new:
            db.psql("delete from events where id <> 2")
            wait_until(take_places, what="vacuum to free the places")
        return Reply(200)

    http.respond = answer
    one = relay(CONFIG.format(db=db.dsn, url=http.url, rest=rest), until_empty=True)
    assert one.wait() == 0
    assert ids(db) == []
    sent = [int(request.headers["event-id"]) for request in http.requests]
    assert len(sent) == len(set(sent)) and set(sent) >= {2, *new}


@pytest.mark.parametrize("before", ["", EMPTIED])
def test_trigger_that_keeps_a_row_is_asked_once(db, relay, http, before):
    db.psql("create table events (id bigserial primary key, order_id bigint, status text not null);"
            f"create index on events (order_id, id); {before}")
    db.psql("vacuum (truncate false) events")
    db.psql("create table asked (id bigint); create function keep() returns trigger language plpgsql security definer as $$ begin"
            " insert into public.asked values (old.id); update public.events set status = 'done' where id = old.id; return null; end $$;"
            f"create trigger keep before delete on events for each row execute function keep(); {INSERT}")
    db.let_relay_in("public.events")
    one = relay(CONFIG.format(db=db.dsn, url=http.url, rest=""" , where: "status <> 'done'" """), until_empty=True)
    assert one.wait() == 0
    assert db.query("select id, status from events order by id") == [(row, "done") for row in ids(db)] and len(ids(db)) == 2
    assert [row[0] for row in db.query("select id from asked order by id")] == ids(db)
    assert len(http.requests) == 2


@pytest.mark.parametrize("referred_to", [1, 64, 250])
def test_row_that_is_refused_is_told_of_once(db, relay, http, referred_to):
    """First it is looked for by its place, and the settlement that names places is refused as well."""
    db.psql("create table events (id bigserial primary key, order_id bigint, status text not null); create index on events (order_id, id);"
            "create table refs (event_id bigint references events (id));"
            "insert into events (order_id, status) select n, 'new' from generate_series(1, 256) n;"
            f"insert into refs values ({referred_to})")
    db.let_relay_in("public.events")
    one = relay(CONFIG.format(db=db.dsn, url=http.url, rest=", connections: 1, retry: { base: 1h, max: 1h }"))
    wait_until(lambda: ids(db) == [referred_to] and db.value("select count(*) from outbox.parked") == 1, 60, "the others to leave")
    assert one.stop() == 0
    assert len(one.logged("settle.failed")) == 1


TABLE = {"table": "public.events", "table_name": "'public.events'", "table_class": "'public.events'::regclass", "id": "e.id",
         "taken": ", e.order_id::text as archive_key, now() as created_at, row_to_json(e.*) as original, e.order_id as handed"}
NAMES = {"deleted": rendered("settle", "deleted_by_id.sql", **TABLE), "state": "outbox", "next_table": "public.next", "next_table_name": "'public.next'", "next_columns": "order_id",
         "next_values": "g.handed", "responses": "", "queue_name": "'q'"}
PLACED = {**NAMES, "deleted": rendered("settle", "deleted_by_place.sql", **TABLE)}


@pytest.mark.parametrize("name,more", [("settle_delete.sql", ""), ("settle_archive.sql", ", 'q'"), ("settle_next.sql", ""),
                                       ("settle_next_archive.sql", "")])
def test_rows_are_found_where_they_were_and_no_others_are_taken(db, name, more):
    db.psql("create table events (id bigserial primary key, order_id bigint); create table next (order_id bigint);"
            "insert into events (order_id) select n from generate_series(1, 9) n")
    with closing(db.connect(autocommit=True)) as session:
        run = session.cursor()
        run.execute("set enable_seqscan = off; set enable_sort = off; set plan_cache_mode = force_generic_plan")
        run.execute(f"prepare by_id as {rendered('settle', name, **NAMES)}; prepare by_place as {rendered('settle', name, **PLACED)}")
        # The first is where it was, the second has moved, and where the third was there is the fourth.
        run.execute("update events set order_id = 20 where id = 2")
        for events, places in (("{1,3}", '{"(0,1)","(0,4)"}'), ("{1,2}", '{"(0,1)","(0,2)"}'), ("{2}", '{"(0,3)"}'), ("{2}", '{"(0,2)"}')):
            with pytest.raises(psycopg2.errors.InvalidTextRepresentation, match="not all of . events are where they were read: settled again, by ids"):
                run.execute(f"execute by_place('{events}', '{places}'{more})")
        assert ids(db) == list(range(1, 10))
        run.execute("execute by_id('{3,2,1}', '{}'" + more + ")")
        assert run.fetchone()[0] == 3
        run.execute("explain (analyze, format json) execute by_place('{4,5,6}', '{\"(0,4)\",\"(0,5)\",\"(0,6)\"}'" + more + ")")
        (scan,) = [node for node in nodes(run.fetchone()[0][0]["Plan"]) if node.get("Relation Name") == "events" and "Scan" in node["Node Type"]]
        assert (scan["Node Type"], scan["Actual Rows"], scan["Actual Loops"]) == ("Tid Scan", 3, 1)
    assert ids(db) == [7, 8, 9]
    assert sum(db.value(f"select count(*) from {table}") for table in ("next", "outbox.archive")) == 6 * (name.count("next") + name.count("archive"))


def nodes(plan):
    return [plan, *(node for part in plan.get("Plans", []) for node in nodes(part))]


MANY = "insert into events (order_id) select n % 100 from generate_series(1, 20000) n"
# Of a table that was vacuumed while it was empty, and could not be made shorter, the planner believes that it has no rows.
BLIND = ("create table events (id bigserial primary key, order_id bigint, status text) with (autovacuum_enabled = off);"
         f"{MANY}; delete from events; vacuum (truncate off) events; alter sequence events_id_seq restart; {{index}} analyze events;")
FEW = "{%s}" % ",".join(map(str, range(11001, 11101)))
PLACES = "(select array_agg(ctid order by ctid) from events where id between 11001 and 11100)"  # before they moved
WHYS = "{%s}" % ",".join(["refused"] * 100)
BY_KEY_ID = {"key_all": "(e.order_id, e.id) >= (k.name::bigint, '-9223372036854775808'::bigint)"
                          " and (e.order_id, e.id) <= (k.name::bigint, 9223372036854775807)", "key_all_order": "e.order_id, e.id"}
BY_KEY = {"key_all": "e.order_id = k.name::bigint", "key_all_order": "e.id + 0"}


@pytest.mark.parametrize("index", ["create index on events (order_id, id);", "create index on events (order_id);"])
def test_dead_letters_are_found_by_their_ids_where_the_planner_is_blind(db, index):
    db.psql(BLIND.format(index=index))
    names = {**TABLE, "key": "e.order_id", "type": "e.status", "created_at": "null", "state": "outbox"}
    read = entries_read(db, rendered("settle", "settle_bury.sql", **names), f"'q', '{FEW}', '{FEW}', '{WHYS}'")
    assert read == 100
    assert db.value("select count(*) from events") == 20000 - 100
    assert db.value("select count(*) from outbox.dead where event_id = attempts and original->>'id' = event_id::text"
                    " and event_id between 11001 and 11100 and reason = 'refused'") == 100


@pytest.mark.parametrize("index", ["create index on events (order_id, id);", "create index on events (order_id);"])
@pytest.mark.parametrize("names,places,sought", [(PLACED, PLACES, 0), (NAMES, "'{}'", 100)], ids=["by place", "by id"])
def test_delivered_rows_are_found_where_they_were_or_by_their_ids_where_the_planner_is_blind(db, index, names, places, sought):
    db.psql(BLIND.format(index=index))
    scans = index_scans(db, rendered("settle", "settle_delete.sql", **names), f"'{FEW}', {places}", before="select")
    assert sum(scan["Actual Rows"] for scan in scans) == sought
    assert sum(scan["Shared Hit Blocks"] + scan["Shared Read Blocks"] for scan in scans) <= 10 * sought
    assert db.query("select count(*), count(*) filter (where id between 11001 and 11100) from events") == [(20000 - 100, 0)]


@pytest.mark.parametrize("index,names", [("create index on events (order_id, id);", BY_KEY_ID), ("create index on events (order_id);", BY_KEY)])
def test_next_event_of_a_key_is_found_by_the_key_where_the_planner_is_blind(db, index, names):
    db.psql(BLIND.format(index=index))
    db.query("insert into outbox.parked (queue, key, event_id, next_at) values ('q', '7', 1, 'infinity')")
    names = {**names, "table": "public.events", "id": "e.id", "where": "e.status is null", "state": "outbox"}
    read = entries_read(db, rendered("settle", "settle_unpark.sql", **names), "'q', '{7}', '{}', '{}'",
                        before="delete from events where id < 15000")
    assert read <= 200  # what the key has had
    assert db.query("select event_id from outbox.parked") == [(15007,)]


def entries_read(db, statement, values, before="select"):
    """But of those that do not match what an index knows, too."""
    return sum(scan["Actual Loops"] * (scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0))
               for scan in index_scans(db, statement, values, before))


def index_scans(db, statement, values, before):
    """Of a table that has filled up since the planner heard of it."""
    with closing(db.connect(autocommit=True)) as session:
        run = session.cursor()
        run.execute("set enable_seqscan = off; set enable_sort = off; set plan_cache_mode = force_generic_plan")
        run.execute(f"prepare settle as {statement}")
        db.psql(MANY)
        values = values.replace(PLACES, f"'{db.value(f'select {PLACES}::text')}'")
        db.psql(before)
        run.execute(f"explain (analyze, buffers, format json) execute settle({values})")
        return [node for node in nodes(run.fetchone()[0][0]["Plan"]) if node.get("Relation Name") == "events" and "Index" in node["Node Type"]]
