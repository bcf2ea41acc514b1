"""Columns may have the names of anything in the functions that are made for a queue, in its condition, too."""

import pytest

from tests.support.postgres import OWNER_ROLE
from tests.support.process import wait_until
from tests.support.workers import Worker, owner

# Of what is not text, the value would change what is found.
NAMES = {"until": "timestamptz default '-infinity'", "looked": "timestamptz default '-infinity'"} | dict.fromkeys(
    ["most", "again", "ret", "asked_to", "rows", "waits", "waits_from", "from_id", "sweep_rows", "sweep_from", "sweep_to", "keys", "keyless_ids", "sweeps",
     "expired", "seen", "swept", "left_from", "chance", "quarter", "token", "tokens", "ids", "reason", "responses", "gone", "went", "worker", "lease",
     "attempt", "expires_at", "look", "place", "queue", "keyless", "event_id", "next_at", "due_at", "after_id", "failures"], "text default 'x'")
CONDITION = " and ".join(f"{name} is not null" for name in NAMES)


@pytest.mark.parametrize("priority", ["null", "'urgency'"], ids=["by id", "by priority"])
@pytest.mark.parametrize("delayed", ["hold", "pass"])
def test_columns_may_be_called_anything(db, delayed, priority):
    db.query("create table public.jobs (id bigserial primary key, k text, at timestamptz, after_ids bigint[], urgency int not null default 0,"
             f" {', '.join(f'{name} {kind}' for name, kind in NAMES.items())}); create index on public.jobs (k, id); create index on public.jobs (at);"
             f" create index on public.jobs (urgency desc, id); grant select, delete on public.jobs to {OWNER_ROLE}")
    owner(db, f"select outbox.queue_set('jobs', 'public.jobs', key_column => 'k', not_before_column => 'at', after_column => 'after_ids',"
              f" delayed => '{delayed}', priority_column => {priority}, condition => '{CONDITION}')")
    worker = Worker(db, "jobs")
    db.query("insert into public.jobs (k, at, after_ids) values ('a', 'infinity', null), ('b', null, null), ('c', null, '{2}'), (null, null, '{2}')")
    (event,) = worker.take(10)
    assert event.id == 2 and worker.take(10) == []
    assert worker.done(event.token)
    found = []
    wait_until(lambda: found.extend(worker.take(10)) or len(found) == 2, what="what came after it")
    assert {event.id for event in found} == {3, 4} and worker.fail(found[0].token) and worker.done(found[1].token)
    worker.close()


def test_what_becomes_due_is_not_measured_by_a_column(db):
    db.query("create table public.jobs (id bigserial primary key, k text, at timestamptz, until timestamptz default '-infinity', most int);"
             f" create index on public.jobs (k, id); create index on public.jobs (at); grant select, delete on public.jobs to {OWNER_ROLE}")
    owner(db, "select outbox.queue_set('jobs', 'public.jobs', key_column => 'k', not_before_column => 'at', delayed => 'pass')")
    worker = Worker(db, "jobs")
    db.query("insert into public.jobs (k, at) values ('a', 'infinity'), ('a', null), ('a', null)")
    (event,) = worker.take()
    assert event.id == 2 and worker.done(event.token)
    db.query("update public.jobs set at = clock_timestamp() where id = 1")
    (event,) = worker.take()
    assert event.id == 1
    worker.close()
