"""preset: the tables and statements of docs/presets.md, served with nothing but the preset's name."""

import json
import os
import re
import threading

import pytest

from tests.support.preset_workers import THEIRS
from tests.support.process import REPO
from tests.support.postgres import RELAY_ROLE
from tests.support.servers import Reply, run_command, wait_until

CONFIG = """
database: "{dsn}"
sinks: {{ log: {{ type: file, path: "{path}" }} }}
queues: {{ orders: {{ preset: {preset}, sink: log{more} }} }}
"""
ARRIVES = {
    "debezium": ("1", "OrderCreated", "outbox.event.Order", {"id": 1, "lineItems": []}),
    "eventuate": (None, None, "Order", '{"total": 12.50}'),
    "open-outbox": ("1", "order.created", "order.created", None),
    "workqueue": (None, None, "", {"do": "something"}),
    "task": (None, "mail", "", {"to": "a@example.org"}),
    "tasks_queue": (None, "resize", "", {"image": 7}),
}
TAKEN = {"eventuate": "published = 1", "open-outbox": "status = 'DELIVERING'", "workqueue": "locked_by = 'host'",
         "task": "status = 'running'", "tasks_queue": "status = 'running'"}


def statements():
    with open(os.path.join(REPO, "docs", "presets.md"), encoding="utf-8") as page:
        return dict(re.findall(r"<!-- preset: (\S+) -->\n```sql\n(.*?)```", page.read(), re.DOTALL))


def theirs(preset):
    """The statements of the table's own workers, or of its own relay, by name, as psycopg2 takes them."""
    return {name: re.sub(r":(\w+)", r"%(\1)s", text.replace("%", "%%"))
            for name, text in re.findall(r"-- (\w+)\n([^;]*);", THEIRS[preset])}


def check(tmp_path, text, code=0):
    path = tmp_path / "pgcourier.yaml"
    path.write_text(text)
    done = run_command("check-config", "-c", str(path))
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_the_page_has_every_preset(tmp_path):
    said = check(tmp_path, CONFIG.format(dsn="", path="/dev/null", preset="nothing", more=""), code=78)
    assert list(statements()) == list(ARRIVES) and all(name in said for name in ARRIVES)


@pytest.mark.parametrize("preset", list(ARRIVES))
def test_the_table_of_a_preset_is_served_as_it_is(db, relay, tmp_path, preset):
    create, insert = statements()[preset].split("\n\n")
    table = re.search(r"create table (\S+)", create).group(1)
    db.psql(create + insert)
    db.let_relay_in(table)
    if preset in TAKEN:  # somebody else has this one
        db.psql(f"{insert.replace('406c', '506c')} update {table} set {TAKEN[preset]} where ctid = (select max(ctid) from {table})")
    path = tmp_path / "out.jsonl"
    assert relay(CONFIG.format(dsn=db.dsn, path=path, preset=preset, more=""), until_empty=True).wait() == 0
    (line,) = [json.loads(text) for text in path.read_text().splitlines()]
    assert (line["key"], line["type"], line["destination"], line.get("payload")) == ARRIVES[preset]
    assert db.value(f"select count(*) from {table}") == (1 if preset in TAKEN else 0)


@pytest.mark.parametrize("preset, done", [("eventuate", {"published": 1}), ("open-outbox", {"status": "DELIVERED", "locked_by": None})])
def test_what_the_tables_own_relay_has_delivered_stays_as_it_is(db, relay, tmp_path, preset, done):
    create, insert = statements()[preset].split("\n\n")
    table = re.search(r"create table (\S+)", create).group(1)
    db.psql(create + insert + insert.replace("406c", "506c").replace("0000018b-1", "0000018b-2"))
    db.let_relay_in(table)
    sql, path = theirs(preset), tmp_path / "out.jsonl"
    taken = db.query(sql["take"], {"worker": "host-1"})[0][0]
    assert "returning" in sql["take"] or db.value(f"select count(*) from {table} where published = 0") == 2
    db.query(sql["done"], {"id": taken, "worker": "host-1"})
    assert relay(CONFIG.format(dsn=db.dsn, path=path, preset=preset, more=""), until_empty=True).wait() == 0
    (line,) = [json.loads(text) for text in path.read_text().splitlines()]
    assert line["event_id"] != taken
    assert db.query(f"select {', '.join(done)} from {table}") == [tuple(done.values())]


def test_what_the_relay_of_an_open_outbox_puts_off_is_not_delivered_before_its_time(db, relay, tmp_path):
    create, insert = statements()["open-outbox"].split("\n\n")
    table, sql, path = "public.openoutbox_events", theirs("open-outbox"), tmp_path / "out.jsonl"
    db.psql(create + insert + insert.replace("406c", "506c").replace("'1', '{", "'2', '{"))
    db.let_relay_in(table)
    taken = db.query(sql["take"], {"worker": "host-1"})[0][0]
    db.query(sql["later"].replace("'1 second'", "'1 hour'"), {"id": taken, "worker": "host-1"})
    db.query(sql["done"], {"id": taken, "worker": "host-1"})  # too late: it is not that relay's any more
    one = relay(CONFIG.format(dsn=db.dsn, path=path, preset="open-outbox", more=""))
    wait_until(lambda: db.value(f"select count(*) from {table}") == 1, what="the other one to be delivered")
    assert db.query(f"select event_id, status, last_error from {table}") == [(taken, "PENDING", "timeout")]
    db.query(f"update {table} set available_at = now(); select outbox.look_again('orders')")
    wait_until(lambda: db.value(f"select count(*) from {table}") == 0, what="its time to come")
    assert one.stop() == 0
    assert [json.loads(text)["event_id"] == taken for text in path.read_text().splitlines()] == [False, True]


ORDERINGS = ["lease", "unordered, locks: rows", "unordered, locks: advisory"]
TASKS = """
database: "{dsn}"
sinks: {{ web: {{ type: http, url: "{url}" }} }}
queues: {{ orders: {{ preset: {preset}, sink: web, ordering: {ordering}, retry: {{ base: 10ms, max: 20ms }}{more} }} }}
"""


def make_tasks(db, preset, count):
    """The table of a preset with `count` tasks of it; its name."""
    create, insert = statements()[preset].split("\n\n")
    table = re.search(r"create table (\S+)", create).group(1)
    db.psql(create + insert * count)
    db.query(f"select outbox.grant_relay('{table}'); grant update (id) on {table} to {RELAY_ROLE}")
    return table


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("preset", ["workqueue", "task", "tasks_queue"])
def test_a_table_of_tasks_is_served_under_each_ordering(db, relay, http, preset, ordering):
    table = make_tasks(db, preset, 21)
    db.query(f"update {table} set {TAKEN[preset]} where id = 21")
    taken = db.query(f"select xmin, t.* from {table} t where id = 21")
    fails = {"3"}

    def respond(request):
        failed = request.headers["event-id"] in fails
        fails.discard(request.headers["event-id"])
        return Reply(500 if failed else 200, delay_s=0.3)

    http.respond = respond
    by_hand = db.connect(autocommit=False)  # a worker of theirs
    if "rows" in ordering:
        by_hand.cursor().execute(f"select from {table} where id = 7 for update skip locked")
    one = relay(TASKS.format(dsn=db.dsn, url=http.url, preset=preset, ordering=ordering, more=""))
    if ordering == "lease":
        wait_until(lambda: db.value("select count(*) from outbox.status_leases") > 0, what="leases")
    if "rows" in ordering:
        wait_until(lambda: db.query(f"select id from {table} order by 1") == [(7,), (21,)], what="what nobody has to be delivered")
    by_hand.rollback()
    by_hand.close()
    wait_until(lambda: db.query(f"select id from {table}") == [(21,)])
    wait_until(lambda: db.query("select * from outbox.parked") == [])
    assert one.stop() == 0
    delivered = [int(request.headers["event-id"]) for request in http.requests]
    assert sorted(delivered) == sorted([*range(1, 21), 3]), "each once, and once more what has failed"
    assert db.query(f"select xmin, t.* from {table} t") == taken, "nothing was written"


# What the articles' own workers leave of a task that is done, and how one that stood still for an hour is found.
LEFT = {"workqueue": [], "task": [(1, "done")], "tasks_queue": [(1, "done")]}
STATE = {"workqueue": "locked_by", "task": "status", "tasks_queue": "status"}
SINCE = {"workqueue": "locked_at", "task": "begun_at", "tasks_queue": "heartbeat_at"}


class Worker:
    """One of the table's own, by the statements of the page."""

    def __init__(self, db, preset, name):
        self.db, self.sql, self.name = db, theirs(preset), name

    def say(self, what, task=None):
        """The id of the task that was taken, None where there is none, and None for what takes none."""
        rows = self.db.query(self.sql[what], {"worker": self.name, "id": task})
        return rows[0][0] if rows else None


@pytest.mark.parametrize("ordering", ["per_key", *ORDERINGS])
@pytest.mark.parametrize("preset", ["workqueue", "task", "tasks_queue"])
def test_what_a_worker_has_is_its_own_and_what_it_gives_back_is_delivered(db, relay, http, preset, ordering):
    """By the statements of the articles, before and while a relay serves the table."""
    table = make_tasks(db, preset, 9)
    worker, other = Worker(db, preset, "host-1"), Worker(db, preset, "host-2")
    assert [worker.say("take") for _ in range(4)] == [1, 2, 3, 4], "the oldest, each once"
    worker.say("done", 1)
    if "failed" in worker.sql:
        worker.say("failed", 2)
    worker.say("again", 2)
    if "alive" in worker.sql:
        worker.say("alive")
    before = db.query(f"select xmin, t.* from {table} t where id in (1, 3, 4) order by id")
    one = relay(TASKS.format(dsn=db.dsn, url=http.url, preset=preset, ordering=ordering, more=""))
    wait_until(lambda: db.value(f"select count(*) from {table}") == len(before), what="what nobody has to be delivered")
    assert db.query(f"select xmin, t.* from {table} t order by id") == before, "nothing was written"
    assert worker.say("take") is None and other.say("take") is None

    db.query(f"update {table} set {SINCE[preset]} = now() - interval '1 hour' where id = 3")
    if preset == "workqueue":  # whose workers take over from each other, and no relay does
        assert other.say("take") == 3 and db.value(f"select locked_by from {table} where id = 3") == "host-2"
        other.say("done", 3)
    else:
        other.say("hung")
    if "failed" in worker.sql:
        worker.say("failed", 4)
    worker.say("again", 4)
    wait_until(lambda: db.value(f"select count(*) from {table}") == len(LEFT[preset]), what="what was given back to be delivered")
    worker.say("done", 4)  # too late: nothing is there to be written
    assert db.query(f"select id, {STATE[preset]} from {table}") == LEFT[preset]
    assert one.stop() == 0
    delivered = [int(request.headers["event-id"]) for request in http.requests]
    assert sorted(delivered) == sorted([2, 4, 5, 6, 7, 8, 9, *([] if preset == "workqueue" else [3])])


@pytest.mark.parametrize("preset", ["workqueue", "task", "tasks_queue"])
def test_workers_and_a_relay_with_row_locks_share_a_table_and_each_task_is_done_once(db, relay, http, preset):
    http.respond = lambda request: Reply(200, delay_s=0.02)
    table = make_tasks(db, preset, 300)
    more = ", locks: rows, keys_per_claim: 4, connections: 2"
    one = relay(TASKS.format(dsn=db.dsn, url=http.url, preset=preset, ordering="unordered", more=more))
    wait_until(lambda: http.requests, what="the relay to have begun")
    done = [[], [], []]

    def work(worker, mine):
        while (task := worker.say("take")) is not None:
            mine.append(task)
            worker.say("done", task)

    workers = [threading.Thread(target=work, args=(Worker(db, preset, f"host-{number}"), mine)) for number, mine in enumerate(done)]
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join()
    waiting = {"workqueue": "true", "task": "status = 'new'", "tasks_queue": "status = 'queued'"}[preset]
    wait_until(lambda: db.value(f"select count(*) from {table} where {waiting}") == 0, what="all to be done")
    assert one.stop() == 0
    delivered = [int(request.headers["event-id"]) for request in http.requests]
    by_hand = [task for mine in done for task in mine]
    assert sorted(delivered + by_hand) == list(range(1, 301)), "each once, whoever it was"
    assert delivered and all(done), "all of them had some"
    left = [] if preset == "workqueue" else sorted(by_hand)
    assert db.query(f"select id from {table} order by 1") == [(task,) for task in left]


def test_a_task_that_is_done_may_be_kept_by_its_worker(db):
    """Q4: in the same statement, and so in the same transaction."""
    table = make_tasks(db, "workqueue", 1)
    db.query(f"create table public.workqueue_archive (like {table} including all)")
    worker = Worker(db, "workqueue", "host-1")
    assert worker.say("take") == 1
    worker.say("keep", 1)
    assert db.query(f"select id from {table}") == [] and db.query("select id, locked_by from public.workqueue_archive") == [(1, "host-1")]


@pytest.mark.parametrize("locks", ["rows", "advisory"])
def test_an_unordered_preset_may_map_the_priority_of_its_table(db, relay, http, locks):
    table = make_tasks(db, "task", 20)
    db.query(f"create index on {table} (priority desc, id); update {table} set priority = id where id > 15 and status = 'new'")
    more = f", locks: {locks}, columns: {{ priority: priority }}, oldest_share: 0, keys_per_claim: 1, connections: 1"
    one_at_a_time = TASKS.replace("type: http,", "type: http, max_in_flight: 1,")  # two would race to the receiver
    assert relay(one_at_a_time.format(dsn=db.dsn, url=http.url, preset="task", ordering="unordered", more=more), until_empty=True).wait() == 0
    delivered = [int(request.headers["event-id"]) for request in http.requests]
    assert delivered[1:6] == [20, 19, 18, 17, 16], "the first claim, of one task, does not know yet that there are more"


def test_the_queues_own_settings_go_first_and_what_comes_of_it_is_printed(tmp_path):
    more = ', table: shop.outbox, columns: { key: type }, where: "true"'
    said = check(tmp_path, CONFIG.format(dsn="", path="/dev/null", preset="debezium", more=more))
    assert said.splitlines()[1] == (
        'orders: preset debezium: table: "shop.outbox", destination: "outbox.event.{aggregatetype}", '
        'columns: { id: "seq", event_id: "id", key: "type", type: "type", payload: "payload" }')


def test_a_preset_that_is_misspelt_is_said(tmp_path):
    said = check(tmp_path, CONFIG.format(dsn="", path="/dev/null", preset="debezum", more=""), code=78)
    assert said.count("\n") == 1 and "queues.orders.preset: " in said
