"""What a bench asks of its database, beside the sessions of a relay that it has just stopped."""

from contextlib import closing

from tests.support.sql_files import rendered

SEQUENCE = {"sequence": "public.events_id_seq", "sequence_class": "'public.events_id_seq'::regclass"}


def test_table_is_emptied_beside_a_session_that_has_asked_the_sequence(db):
    db.psql("create table events (id bigserial primary key)")
    with closing(db.connect(autocommit=False)) as probe, closing(db.connect(autocommit=True)) as bench:
        run = probe.cursor()
        run.execute(rendered("horizon", "horizon_drawn.sql", **SEQUENCE))
        bench.cursor().execute("set lock_timeout = '5s'")
        bench.cursor().execute(rendered("bench", "bench_truncate.sql", state="public"))
        run.execute("select id from events")
        assert run.fetchall() == []
