"""pgcourier status: what waits, for how long, and what stands still."""

import json

import pytest

from tests.support.servers import run_command

CONFIG = """
database: "{dsn}"
sinks: {{ none: {{ type: discard }} }}
queues:
  orders: {{ table: public.t, columns: {{ key: {key}, created_at: at }}, sink: none }}
"""


@pytest.fixture
def status(db, pg, tmp_path):
    """As somebody who may look and no more."""
    def run(key="key", user="watcher"):
        path = tmp_path / "pgcourier.yaml"
        path.write_text(CONFIG.format(dsn=pg.dsn(db.name, user=user), key=key))
        done = run_command("status", "--json", "-c", str(path))
        assert done.returncode == 0, done.stderr
        queue = json.loads(done.stdout)["queues"][0]
        return {name: queue[name] for name in ("waiting", "parked", "closed")}, queue["oldest_age_s"]

    # Columns of the names that outbox.parked has.
    db.psql('create table public.t (id bigserial primary key, key text collate "C", event_id bigint, at timestamptz not null)')
    pg.query("drop role if exists watcher; create role watcher login in role outbox_monitor")
    db.query("grant select on public.t to watcher")
    return run


def insert(db, key, hours):
    return db.value("insert into public.t (key, event_id, at) values (%s, 0, now() - %s * interval '1 hour') returning id", (key, hours))


def park(db, key, event_id, next_at, keyless=False):
    db.query("insert into outbox.parked (queue, key, event_id, keyless, attempts, next_at) values ('orders', %s, %s, %s, 1, %s)",
             (key, event_id, keyless, next_at))


def test_the_oldest_is_of_those_that_will_be_delivered(db, status):
    assert status() == ({"waiting": 0, "parked": 0, "closed": 0}, None)
    closed, alone, waits, _ = (insert(db, key, hours) for key, hours in [("a", 9), (None, 8), ("b", 7), ("c", 6)])
    park(db, "a", closed, "infinity")
    park(db, "", alone, "infinity", keyless=True)
    park(db, "b", waits, "now")
    counts, oldest = status()
    assert counts == {"waiting": 4, "parked": 1, "closed": 2}
    assert 7 * 3600 <= oldest < 7.5 * 3600
    db.query("delete from public.t where key in ('b', 'c')")
    assert status() == ({"waiting": 2, "parked": 1, "closed": 2}, None)


@pytest.mark.parametrize("hours, age", [(0.0, "0.0 s"), (0.5, "30.0 m"), (5, "5.0 h")])
def test_ages_are_for_people(db, status, tmp_path, hours, age):
    status()
    insert(db, "a", hours)
    done = run_command("status", "-c", str(tmp_path / "pgcourier.yaml"))
    assert done.returncode == 0, done.stderr
    heads, row = done.stdout.splitlines()
    assert heads.split() == ["queue", "waiting", "oldest", "parked", "closed", "paused", "dead"]
    name, waiting, number, unit, *rest = row.split()
    assert (name, waiting, unit, rest) == ("orders", "1", age.split()[1], ["0", "0", "0", "0"])
    assert float(age.split()[0]) <= float(number) < float(age.split()[0]) + 60
