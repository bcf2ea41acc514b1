"""The tests themselves: what has more rights than it needs is found out."""

import pytest

from tests.support import privileges, servers
from tests.support.postgres import RELAY_ROLE, SUPERUSER
from tests.support.servers import run_command

CONFIG = 'database: "{dsn}"\nsinks: {{ none: {{ type: discard }} }}\nqueues: {{ q: {{ sink: none }} }}\n'


@pytest.fixture
def status(tmp_path):
    """status(dsn, then=...) -> what is said about the logins of that command, once `then` is done."""
    def run(dsn, then=lambda: None):
        path = tmp_path / "pgcourier.yaml"
        path.write_text(CONFIG.format(dsn=dsn))
        assert run_command("status", "-c", str(path)).returncode == 0
        then()
        return privileges.collect()

    privileges.collect()
    return run


def test_a_superuser_and_an_owner_are_found_and_a_relay_is_not(db, pg, status):
    assert status(db.dsn) == []
    assert status(db.superuser_dsn) == [f"pgcourier/status logged in as {SUPERUSER}, a superuser"]
    assert status(f"{db.superuser_dsn} application_name=pgcourier") == [f"pgcourier logged in as {SUPERUSER}, a superuser"]
    with servers.PgBouncer(pg, user=SUPERUSER) as pooler:
        assert {text.split(" logged")[1] for text in status(pooler.dsn(db.name))} == {f" in as {SUPERUSER}, a superuser"}
    role = f"owns_{db.name}"
    db.query(f"create role {role} login in role outbox_relay; create table public.t (); alter table public.t owner to {role}")
    try:
        assert status(db.server.dsn(db.name, role)) == [f"pgcourier/status logged in as {role}, who owns a table or may become its owner"]
    finally:
        db.query(f"drop owned by {role}; drop role {role}")


@pytest.mark.parametrize("name", ["psql", "tests", "pgcourier"])
def test_no_name_that_a_program_may_give_itself_makes_it_one_of_the_tests(db, status, name):
    found = status(f"{db.superuser_dsn} application_name={name}")
    assert [text.split(" logged")[1] for text in found] == [f" in as {SUPERUSER}, a superuser"]


def test_sessions_of_the_tests_are_not_found(db):
    privileges.collect()
    db.query("select 1")
    db.psql("select 1")
    assert privileges.collect() == []


@pytest.mark.parametrize("change", ["drop role {}", "DROP USER {}", "alter role {} nosuperuser", "Alter  User {} nosuperuser"])
@pytest.mark.parametrize("way", ["query", "psql"])
def test_a_superuser_that_is_gone_or_mighty_no_more_in_the_end_is_found(db, status, way, change):
    role = f"mighty_{db.name}"
    db.query(f"create role {role} login superuser")
    try:
        found = status(db.server.dsn(db.name, role), then=lambda: getattr(db, way)(change.format(role)))
        assert found == [f"pgcourier/status logged in as {role}, a superuser"]
    finally:
        db.query(f"drop role if exists {role}")


def test_of_who_is_gone_unseen_the_worst_is_thought(db, status):
    """As when it was not the harness that ran the statement."""
    role = f"unseen_{db.name}"
    db.query(f"create role {role} login in role outbox_relay")

    def drop():
        connection = db.connect()
        connection.cursor().execute(f"drop role {role}")
        connection.close()

    assert status(db.server.dsn(db.name, role), then=drop) == [f"pgcourier/status logged in as {role}, {privileges.UNKNOWN}"]


def test_who_never_was_there_is_nobody(db):
    privileges.collect()
    assert run_command("publish", "-d", db.server.dsn(db.name, "no_such_role"), "--key", "k").returncode == 77
    assert privileges.collect() == []


def test_a_database_that_is_gone_and_a_server_that_is_down_hide_no_superuser(status):
    with servers.Postgres() as server:
        server.query("create role mighty login superuser")
        server.query("create database short_lived")
        found = "pgcourier/publish logged in as mighty, {}".format

        def publish(database, user, then):
            assert run_command("publish", "-d", server.dsn(database, user), "--key", "k").returncode == 78
            then()
            return privileges.collect()

        assert publish("short_lived", "mighty", lambda: server.query("drop database short_lived")) == [found("a superuser")]
        server.query(f"create role {RELAY_ROLE} login")
        assert publish("postgres", RELAY_ROLE, server.stop) == []
        server.start()
        assert publish("postgres", "mighty", server.stop) == [found(privileges.UNKNOWN)]


def test_a_server_that_is_gone_has_left_its_logins(status):
    with servers.Postgres() as server:
        path = server.superuser_dsn()
        assert run_command("publish", "-d", path, "--key", "k").returncode == 78
    assert privileges.collect() == [f"pgcourier/publish logged in as {SUPERUSER}, a superuser"]


def test_a_mark_has_a_reason_and_is_needed():
    mark = pytest.mark.superuser
    assert privileges.complaint(None, []) is None and privileges.complaint(mark("why").mark, ["x"]) is None
    assert privileges.complaint(None, ["x", "y"]) == "x\ny"
    assert "needs a reason" in privileges.complaint(mark.mark, ["x"])
    assert "is not needed" in privileges.complaint(mark("why").mark, [])
