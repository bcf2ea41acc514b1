"""preset: the tables and statements of docs/presets.md, served with nothing but the preset's name."""

import json
import os
import re

import pytest

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


ORDERINGS = ["lease", "unordered, locks: rows", "unordered, locks: advisory"]
TASKS = """
database: "{dsn}"
sinks: {{ web: {{ type: http, url: "{url}" }} }}
queues: {{ orders: {{ preset: {preset}, sink: web, ordering: {ordering}, retry: {{ base: 10ms, max: 20ms }}{more} }} }}
"""


def make_tasks(db, preset, count):
    """The table of a preset with `count` tasks of it and one more that somebody has; that one's row as it is, and the table."""
    create, insert = statements()[preset].split("\n\n")
    table = re.search(r"create table (\S+)", create).group(1)
    db.psql(create + insert * (count + 1) + f"update {table} set {TAKEN[preset]} where id = {count + 1}")
    db.query(f"select outbox.grant_relay('{table}'); grant update (id) on {table} to {RELAY_ROLE}")
    return db.query(f"select xmin, t.* from {table} t where id = {count + 1}"), table


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("preset", ["workqueue", "task", "tasks_queue"])
def test_a_table_of_tasks_is_served_under_each_ordering(db, relay, http, preset, ordering):
    taken, table = make_tasks(db, preset, 20)
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


@pytest.mark.parametrize("locks", ["rows", "advisory"])
def test_an_unordered_preset_may_map_the_priority_of_its_table(db, relay, http, locks):
    _, table = make_tasks(db, "task", 20)
    db.query(f"create index on {table} (priority desc, id); update {table} set priority = id where id > 15 and status = 'new'")
    more = f", locks: {locks}, columns: {{ priority: priority }}, oldest_share: 0, keys_per_claim: 1, connections: 1"
    assert relay(TASKS.format(dsn=db.dsn, url=http.url, preset="task", ordering="unordered", more=more), until_empty=True).wait() == 0
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
