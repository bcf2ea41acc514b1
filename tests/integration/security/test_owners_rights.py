"""What has the rights of the owner of the schema outbox runs nothing that somebody with lesser rights wrote."""

import psycopg2
import pytest

from tests.support.postgres import OWNER_ROLE
from tests.support.servers import wait_until

TABLE = "create table mallory.t (id bigserial primary key, k text, at timestamptz default now()); insert into mallory.t (k) values ('a'), ('b');"
CHILD = "create table mallory.t (id bigint not null, k text, at timestamptz); insert into mallory.t values (1, 'a', now());"
# Found out when the index is read for a plan, as it has no column in it.
INDEX = "create index on mallory.t (mallory.fold('k'));"
MOOD = ("create type mallory.mood as enum ('a');"
        "create function mallory.spelt(mallory.mood) returns text language sql as 'select mallory.tell()';"
        "create cast (mallory.mood as text) with function mallory.spelt(mallory.mood);")
HOSTILE = {
    "view": ("create view mallory.t as select n as id, mallory.tell() as k, now() as at from generate_series(1::bigint, 2) n", None),
    "row policy": (TABLE + "alter table mallory.t enable row level security; create policy p on mallory.t using (mallory.tell() is not null)", None),
    "cast": (MOOD + "create table mallory.t (id bigserial primary key, k mallory.mood, at timestamptz); insert into mallory.t (k) values ('a')", None),
    "index": (TABLE + INDEX, None),
    "condition of an index": (TABLE + "create index on mallory.t (id) where mallory.fold('k') = 'k'", None),
    "constraint": (CHILD + "create table mallory.c (check (id > length(mallory.fold('k')))) inherits (mallory.t)", None),
    "cast of a type in the owner's table": (MOOD, "create table public.t (id bigserial primary key, k mallory.mood, at timestamptz);"
                                            "insert into public.t (k) values ('a')"),
    "partition": (CHILD + INDEX, "create table public.t (id bigint not null, k text, at timestamptz) partition by range (id);"
                  "alter table public.t attach partition mallory.t for values from (0) to (100)"),
    "child": (CHILD + INDEX, "create table public.t (id bigint not null, k text, at timestamptz); alter table mallory.t inherit public.t"),
}
SERVED = "insert into outbox.served (queue, tbl, lock_class, key_type, columns) values ('lured', %s::regclass, 7, 'text', '{\"id\": \"id\", \"key\": \"k\", \"created_at\": \"at\"}')"
NOTE = "select outbox.note_served('lured', %s::regclass, 7, 'text', '{\"id\": \"id\", \"key\": \"k\", \"created_at\": \"at\"}')"


@pytest.fixture
def mallory(db, pg):
    """A relay's login with a schema of its own, in which a function says whose rights it has got hold of."""
    role = f"mallory_of_{db.name}"
    pg.query(f"create role {role} login in role outbox_relay")
    db.query(f"create schema mallory authorization {role}; grant usage on schema mallory to public;"
             f"alter default privileges for role {role} grant select on tables to public")
    run(db, role, "create function mallory.tell() returns text language plpgsql as"
                  " $$ begin raise warning 'code of mallory runs as %', current_user; return 'k'; end $$;"
                  "create function mallory.fold(text) returns text language plpgsql immutable as"
                  " $$ begin perform mallory.tell(); return 'k'; end $$")
    yield role
    db.drop()
    pg.query(f"drop role {role}")


def run(db, user, sql, parameters=None):
    """What it has returned, and the names of those whose rights mallory's functions had meanwhile."""
    connection = db.connect(user=user)
    try:
        with connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            rows = cursor.fetchall() if cursor.description else []
        return rows, {notice.split("runs as ")[1].split("\n")[0] for notice in connection.notices if "code of mallory" in notice}
    finally:
        connection.close()


@pytest.fixture
def dashboard(pg):
    pg.query("do $$ begin create role dashboard login; exception when duplicate_object then null; end $$; grant outbox_monitor to dashboard")
    return "dashboard"


@pytest.fixture(params=HOSTILE)
def lure(request, db, mallory):
    """The name of a relation, with mallory's code on it."""
    own, owners = HOSTILE[request.param]
    run(db, mallory, own)
    if owners:
        db.query(f"{owners}; grant select on public.t to public")
    return "public.t" if owners else "mallory.t"


@pytest.mark.parametrize("reader", ["dashboard", "postgres"])
def test_reading_how_queues_stand_runs_no_code_of_what_is_served(db, mallory, dashboard, lure, reader):
    db.query(SERVED, (lure,))
    rows, told = run(db, reader, "select queue, oldest_age, dead from outbox.overview where queue = 'lured'")
    assert told == set() and rows == [("lured", None, 0)]


@pytest.mark.parametrize("reader", ["dashboard", "postgres"])
def test_nor_of_what_workers_take_from(db, mallory, dashboard, reader):
    """Its owner has put the code there since it was made known."""
    run(db, mallory, TABLE + f"grant select, delete on mallory.t to {OWNER_ROLE}")
    db.query(f"set role {OWNER_ROLE}; select outbox.queue_set('lured', 'mallory.t', key_column => 'k', created_at_column => 'at')")
    run(db, mallory, INDEX + "alter table mallory.t enable row level security; create policy p on mallory.t using (mallory.tell() is not null)")
    assert run(db, reader, "select queue, oldest_age from outbox.overview") == ([("lured", None)], set())


@pytest.mark.parametrize("made, refused", [("create view mallory.t as select 1::bigint as id, mallory.tell() as k, now() as at", "mallory.t is no table"),
                                           ("create sequence mallory.t", "mallory.t is no table"), ("", "may not select and delete in public.secret")],
                         ids=["view", "sequence", "somebody else's"])
def test_a_relay_notes_only_what_it_could_serve(db, mallory, made, refused):
    db.query("create table public.secret (id bigserial primary key, k text, at timestamptz); insert into public.secret (at) values ('1999-12-31')")
    if made:
        run(db, mallory, made)
    with pytest.raises(psycopg2.Error, match=refused):
        run(db, mallory, NOTE, ("mallory.t" if made else "public.secret",))
    assert db.query("select queue from outbox.served") == []


def test_a_relay_that_has_its_rights_by_another_role_notes_what_it_serves(db, pg, mallory):
    db.query(f"create table public.t (id bigserial primary key, k text, at timestamptz default now()); select outbox.grant_relay('public.t');"
             f"alter role {mallory} noinherit; alter table public.t owner to {OWNER_ROLE}; insert into public.t (k) values ('a')")
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        run(db, mallory, NOTE, ("public.t",))
    run(db, mallory, "set role outbox_relay; " + NOTE, ("public.t",))
    assert db.query("select queue, waiting, estimated from outbox.overview") == [("lured", 1, [])]


def test_of_a_table_whose_owner_has_lesser_rights_the_statistics_say_how_many_wait(db, mallory, dashboard):
    run(db, mallory, "create table mallory.t (id bigserial, k text, at timestamptz) partition by range (id);"
                     "create table mallory.low partition of mallory.t for values from (0) to (3); create table mallory.high partition of mallory.t default;"
                     "insert into mallory.t (k) select 'k' from generate_series(1, 7)")
    run(db, mallory, NOTE, ("mallory.t",))
    shown = lambda: run(db, dashboard, "select waiting, oldest_age, running, estimated from outbox.overview")[0]
    wait_until(lambda: shown() == [(7, None, 0, ["waiting"])], what="the server to have counted")
    db.query("update outbox.served set columns = null")
    assert shown() == [(None, None, 0, [])], "which of them are the queue's is not known"


def test_it_is_counted_where_its_owner_has_the_rights_of_the_schemas_owner(db, mallory, dashboard):
    run(db, mallory, TABLE)
    run(db, mallory, NOTE, ("mallory.t",))
    shown = lambda: run(db, dashboard, "select waiting, oldest_age is not null, estimated from outbox.overview")[0]
    assert shown()[0][1:] == (False, ["waiting"])
    db.query(f"grant {OWNER_ROLE} to {mallory}")
    assert shown() == [(2, True, [])]
    db.query(f"revoke {OWNER_ROLE} from {mallory}; alter table mallory.t owner to {OWNER_ROLE}")
    assert shown()[0][1:] == (False, ["waiting"]), "whoever owns its schema may put another table in its place"
    db.query(f"alter schema mallory owner to {OWNER_ROLE}")
    assert shown() == [(2, True, [])]
