"""`migrate` touches nothing in a schema `outbox` that is, or in which something is, somebody's with lesser rights."""

import pytest

from tests.support.postgres import OWNER_ROLE
from tests.support.servers import run_command

VERSIONS = "create table outbox.schema_version (version int primary key, name text not null, applied_at timestamptz not null default clock_timestamp());"
TRIGGER = ("create function mallory.spring() returns trigger language plpgsql as $$ begin perform mallory.tell(); return new; end $$;"
           "create trigger spring before insert on outbox.schema_version for each row execute function mallory.spring();")
TRAPS = {
    "trigger": VERSIONS + TRIGGER,
    "rule": VERSIONS + "create rule r as on insert to outbox.schema_version do also select mallory.tell();",
    "default": VERSIONS + "alter table outbox.schema_version alter applied_at set default mallory.tell();",
    "view": "create view outbox.schema_version as select 0 as version, 'none' as name, mallory.tell() as applied_at where mallory.tell() is not null;",
    "nothing in it": "",
}
ADMINISTRATORS = [OWNER_ROLE, pytest.param("postgres", marks=pytest.mark.superuser("it is a superuser who must not be led astray"))]


@pytest.fixture
def mallory(empty_db, pg):
    """A login with a schema of its own, in which a function counts how often it is called by another."""
    role = f"mallory_of_{empty_db.name}"
    pg.query(f"create role {role} login")
    empty_db.query(f'grant create on database "{empty_db.name}" to {role}; create schema mallory authorization {role};'
                   "create sequence mallory.calls; grant usage on schema mallory to public; grant all on sequence mallory.calls to public;"
                   "create function mallory.tell() returns timestamptz language sql as $$ select nextval('mallory.calls'); select now() $$")
    yield role
    empty_db.drop()
    pg.query(f"drop role {role}")


def run(db, user, sql):
    connection = db.connect(user=user)
    try:
        connection.cursor().execute(sql)
    finally:
        connection.close()


def migrate(db, user):
    return run_command("migrate", "-d", db.server.dsn(db.name, user))


def called(db):
    return db.value("select is_called from mallory.calls")


def made(db):
    """What there is in the schema outbox that mallory does not own."""
    return db.query("select relname from pg_class where relnamespace = 'outbox'::regnamespace and pg_get_userbyid(relowner) !~ '^mallory'")


@pytest.mark.parametrize("user", ADMINISTRATORS)
@pytest.mark.parametrize("trap", TRAPS)
def test_a_schema_that_somebody_else_made_is_refused(empty_db, mallory, trap, user):
    run(empty_db, mallory, "create schema outbox; grant all on schema outbox to public;" + TRAPS[trap])
    if trap not in ("view", "nothing in it"):
        run(empty_db, mallory, "grant all on outbox.schema_version to public")
    done = migrate(empty_db, user)
    assert (done.returncode, done.stdout, called(empty_db)) == (77, "", False)
    assert done.stderr == (f"pgcourier: the schema outbox belongs to {mallory}, and what is in it would run with the rights of {user};"
                           f" migrate as {mallory}, or drop it if it is not pgcourier's\n")
    assert made(empty_db) == []


@pytest.mark.parametrize("trap", TRAPS)
def test_the_printed_migrations_refuse_it_too(empty_db, mallory, trap):
    """Also where psql goes on after an error."""
    run(empty_db, mallory, "create schema outbox; grant all on schema outbox to public;" + TRAPS[trap])
    empty_db.psql("\\set ON_ERROR_STOP off\n" + run_command("migrate", "--print").stdout, check=False)
    assert not called(empty_db) and made(empty_db) == []


@pytest.mark.parametrize("trap", [trap for trap in TRAPS if TRAPS[trap]])
def test_what_somebody_else_has_put_into_the_own_schema_is_refused(empty_db, mallory, trap):
    empty_db.query(f"create schema outbox authorization {OWNER_ROLE}; grant all on schema outbox to public")
    run(empty_db, mallory, TRAPS[trap] + f"grant all on outbox.schema_version to {OWNER_ROLE}")
    done = migrate(empty_db, OWNER_ROLE)
    kind = "view" if trap == "view" else "table"
    assert (done.returncode, done.stdout, called(empty_db), made(empty_db)) == (77, "", False, [])
    assert done.stderr == (f"pgcourier: {kind} outbox.schema_version belongs to {mallory}, and would run with the rights of {OWNER_ROLE};"
                           " drop it, or move it out of the schema outbox\n")


@pytest.mark.parametrize("thing, name", [("function outbox.take(text) returns int language sql as 'select 1'", "function outbox.take(text)"),
                                         ("type outbox.mood as enum ('a')", "type outbox.mood"),
                                         ("domain outbox.rank as int", "type outbox.rank"), ("sequence outbox.s", "sequence outbox.s")])
def test_so_is_whatever_it_is_in_one_that_was_migrated(empty_db, mallory, thing, name):
    assert migrate(empty_db, OWNER_ROLE).returncode == 0
    empty_db.query(f"grant all on schema outbox to {mallory}")
    run(empty_db, mallory, "create " + thing)
    done = migrate(empty_db, OWNER_ROLE)
    assert done.returncode == 77 and done.stderr.startswith(f"pgcourier: {name} belongs to {mallory}, and would run with")
    empty_db.query(f"drop {name.replace('type outbox.rank', 'domain outbox.rank')}; create {thing}")
    empty_db.query(f"revoke create on schema outbox from {mallory}")
    assert migrate(empty_db, OWNER_ROLE).returncode == 0, "a superuser has all rights anyway"


@pytest.mark.parametrize("grantee", ["mallory", "public"])
@pytest.mark.parametrize("migrated", [False, True])
def test_nor_does_it_go_on_where_somebody_else_may_create_something(empty_db, mallory, grantee, migrated):
    """It would be found by the functions that run with the owner's rights: one of theirs with another type of argument, say."""
    if migrated:
        assert migrate(empty_db, OWNER_ROLE).returncode == 0
    grantee = mallory if grantee == "mallory" else grantee
    empty_db.query(f"create schema if not exists outbox authorization {OWNER_ROLE}; grant create on schema outbox to {grantee}")
    done = migrate(empty_db, OWNER_ROLE)
    assert (done.returncode, done.stdout) == (77, "")
    assert done.stderr == (f"pgcourier: {grantee} may create in the schema outbox, and what is put there may run with the rights of {OWNER_ROLE};"
                           f" revoke create on schema outbox from {grantee};\n")
    empty_db.query(f"revoke create on schema outbox from {grantee}")
    assert migrate(empty_db, OWNER_ROLE).returncode == 0


@pytest.mark.parametrize("change", [TRIGGER, "create rule r as on insert to outbox.schema_version do also select mallory.tell()",
                                    "alter table outbox.schema_version enable row level security"], ids=["trigger", "rule", "row security"])
def test_a_table_of_versions_with_something_on_it_is_refused(empty_db, mallory, change):
    assert migrate(empty_db, OWNER_ROLE).returncode == 0
    empty_db.query(f"grant usage on schema outbox to {mallory}; grant trigger on outbox.schema_version to {mallory}")
    if change == TRIGGER:
        run(empty_db, mallory, change)
    else:
        empty_db.query(change)
    done = migrate(empty_db, OWNER_ROLE)
    assert (done.returncode, called(empty_db)) == (77, False)
    assert "outbox.schema_version is not as pgcourier made it" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.superuser("it has more rights than the schema's owner, and must not lend them")
def test_who_has_more_rights_than_the_owner_migrates_as_the_owner_or_not_at_all(empty_db, pg, mallory):
    assert migrate(empty_db, OWNER_ROLE).returncode == 0
    pg.query(f"grant {OWNER_ROLE} to {mallory}")
    for user in ("postgres", mallory):
        done = migrate(empty_db, user)
        assert done.returncode == 77 and f"the schema outbox belongs to {OWNER_ROLE}" in done.stderr and f"migrate as {OWNER_ROLE}" in done.stderr
    as_owner = run_command("migrate", "-d", pg.dsn(empty_db.name, mallory, options=f"-crole={OWNER_ROLE}"))
    assert (as_owner.returncode, as_owner.stderr) == (0, "")


def test_a_schema_that_was_made_for_the_one_who_migrates_will_do(empty_db, pg, mallory):
    """Who then need not CREATE anything else in the database."""
    pg.query(f"alter role {mallory} createrole")
    empty_db.query(f'revoke create on database "{empty_db.name}" from {mallory}; create schema outbox authorization {mallory}')
    done = migrate(empty_db, mallory)
    assert (done.returncode, done.stderr) == (0, "")
    assert migrate(empty_db, mallory).stdout.startswith("nothing to do")


def test_a_role_with_capitals_may_own_it(empty_db, pg):
    role = f"Mallory of {empty_db.name}"
    pg.query(f'create role "{role}" login')
    empty_db.query(f'create schema outbox authorization "{role}"')
    assert run_command("migrate", "-d", pg.dsn(empty_db.name, f"'{role}'")).returncode == 0
    empty_db.drop()
    pg.query(f'drop role "{role}"')
