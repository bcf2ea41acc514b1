"""The tests themselves: what has more rights than it needs is found out."""

import pytest

from tests.support import privileges, servers
from tests.support.postgres import SUPERUSER
from tests.support.servers import run_command

CONFIG = 'database: "{dsn}"\nsinks: {{ none: {{ type: discard }} }}\nqueues: {{ q: {{ sink: none }} }}\n'


@pytest.fixture
def status(tmp_path):
    """status(dsn) -> what is said about the logins of that command."""
    def run(dsn):
        path = tmp_path / "pgcourier.yaml"
        path.write_text(CONFIG.format(dsn=dsn))
        assert run_command("status", "-c", str(path)).returncode == 0
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
