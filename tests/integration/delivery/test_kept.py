"""Plain reads share connections that stay open, and nothing can tell it but the server's list of sessions."""

from concurrent.futures import ThreadPoolExecutor

import psycopg2
import pytest

from tests.support import servers
from tests.support.kept import is_plain
from tests.support.postgres import TESTS
from tests.support.process import wait_until

PLAIN = ["select count(*) from public.events", "SELECT 1", "show work_mem", "\n  select now(), pg_size_pretty(1::bigint)",
         "select pid from pg_stat_activity where wait_event_type = 'Lock'", "select key from outbox.parked where token is not null"]
NOT_PLAIN = ["insert into t values (1)", "update t set n = 1 returning n", "with gone as (delete from t returning 1) select * from gone",
             "select 1; select 2", "select pg_advisory_lock(1)", "select set_config('a.b', 'c', false)", "select pg_sleep(1)",
             "select outbox.publish('t', 'x')", "select * from outbox.take ('q', 1, 'w', '1m')", "select pg_backend_pid()",
             "select * from t for update", "select nextval('s')", "select pg_terminate_backend(1)", "select pg_reload_conf()",
             "select pg_notify('a', 'b')", "select n_tup_ins from pg_stat_user_tables", "select * from pg_statio_user_tables",
             "selected", "vacuum t", "alter system set a = 'b'"]
SESSION = "select backend_start from pg_stat_activity where application_name = %s and state = 'active' and query like '%%state = %%'"


def session(database):
    """A read that says whose it is."""
    return database.value(SESSION, [TESTS])


@pytest.mark.parametrize("sql, plain", [(sql, True) for sql in PLAIN] + [(sql, False) for sql in NOT_PLAIN])
def test_only_what_leaves_and_finds_nothing_in_its_session_shares_one(sql, plain):
    assert is_plain(sql) == plain


def test_reads_share_a_session_until_the_server_the_role_or_the_statistics_want_a_new_one():
    with servers.Postgres() as server:
        database = server.create_database()
        first = session(database)
        assert session(database) == first
        database.query("alter role postgres set work_mem = '77MB'")
        second = session(database)
        assert second != first and database.value("show work_mem") == "77MB"
        database.query("select n_tup_ins from pg_stat_user_tables")
        third = session(database)
        assert third != second
        database.query("select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and application_name = %s", [TESTS])
        fourth = session(database)
        assert fourth != third
        server.restart("immediate")
        assert session(database) != fourth
        server.restart("smart")  # which waits for those who are there
        database.query("select 1")
        assert server.query("select 1") == [(1,)]
        database.server.create_database(template=database.name)  # which nobody may be connected to
        with pytest.raises(psycopg2.errors.DivisionByZero):
            database.query("select 1 / 0")
        database.drop()


def test_threads_that_read_at_once_do_not_wait_for_each_other(db):
    db.query("create table public.locked ()")
    holder = db.connect(autocommit=False)
    holder.cursor().execute("lock table public.locked")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(db.query, "select count(*) from public.locked")
        wait_until(lambda: db.query("select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"), 30, "it to wait")
        holder.rollback()
        assert waiting.result(30) == [(0,)]
