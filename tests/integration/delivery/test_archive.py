"""A running relay looks after the archive: its partitions reach some days ahead, whoever made the first ones."""

from tests.support.servers import run_command, wait_until

CONFIG = """
database: "{dsn}"
sinks: {{ none: {{ type: discard }} }}
queues: {{ orders: {{ sink: none, after: {after} }} }}
"""

DAYS = "select count(*) from pg_inherits where inhparent = 'outbox.archive'::regclass and inhrelid <> 'outbox.archive_default'::regclass"


def forget_the_days(db):
    """As it is a week after migrate, had nobody looked after it."""
    for (name,) in db.query("select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid"
                            " where i.inhparent = 'outbox.archive'::regclass and c.relname <> 'archive_default'"):
        db.query(f'drop table outbox."{name}"')


def test_a_relay_that_archives_makes_the_partitions_of_the_coming_days(db, relay):
    forget_the_days(db)
    running = relay(CONFIG.format(dsn=db.dsn, after="archive"))
    wait_until(lambda: db.value(DAYS) == 8, what="today and seven days")
    assert run_command("publish", "-d", db.producer_dsn, "-k", "1").returncode == 0
    wait_until(lambda: db.value("select count(*) from outbox.archive") == 1)
    assert db.value("select count(*) from outbox.archive_default") == 0
    assert running.stop() == 0


def test_without_the_right_to_make_partitions_events_are_archived_all_the_same(db, relay):
    forget_the_days(db)
    db.query("alter function outbox.archive_prepare(int) rename to archive_prepare_taken_away")
    running = relay(CONFIG.format(dsn=db.dsn, after="archive"))
    assert run_command("publish", "-d", db.producer_dsn, "-k", "1").returncode == 0
    wait_until(lambda: db.value("select count(*) from outbox.archive_default") == 1)
    wait_until(lambda: running.logged("archive_prepare"), what="a line in the log")
    assert running.stop() == 0


def test_a_relay_that_deletes_leaves_the_archive_alone(db, relay):
    forget_the_days(db)
    assert run_command("publish", "-d", db.producer_dsn, "-k", "1").returncode == 0
    running = relay(CONFIG.format(dsn=db.dsn, after="delete"), until_empty=True)
    assert running.wait() == 0
    assert db.value(DAYS) == 0


def test_a_large_claim_goes_into_the_archive_without_a_temporary_file(db, relay):
    db.query("insert into outbox.events (aggregateid, payload)"
             " select n % 500, jsonb_build_object('note', repeat('x', 300)) from generate_series(1, 10000) n")
    assert relay(CONFIG.format(dsn=db.dsn, after="archive"), until_empty=True).wait() == 0
    assert db.value("select count(*) from outbox.archive") == 10000
    wait_until(lambda: db.value("select count(*) from pg_stat_activity where application_name = 'pgcourier'") == 0,
               what="the relay's sessions to end and count what they have done")
    assert db.value("select temp_files from pg_stat_database where datname = current_database()") == 0
