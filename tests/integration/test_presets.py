"""preset: the tables and statements of docs/presets.md, served with nothing but the preset's name."""

import json
import os
import re

import pytest

from tests.support.process import REPO
from tests.support.servers import run_command

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


def test_the_queues_own_settings_go_first_and_what_comes_of_it_is_printed(tmp_path):
    more = ', table: shop.outbox, columns: { key: type }, where: "true"'
    said = check(tmp_path, CONFIG.format(dsn="", path="/dev/null", preset="debezium", more=more))
    assert said.splitlines()[1] == (
        'orders: preset debezium: table: "shop.outbox", destination: "outbox.event.{aggregatetype}", '
        'columns: { id: "seq", event_id: "id", key: "type", type: "type", payload: "payload" }')


def test_a_preset_that_is_misspelt_is_said(tmp_path):
    said = check(tmp_path, CONFIG.format(dsn="", path="/dev/null", preset="debezum", more=""), code=78)
    assert said.count("\n") == 1 and "queues.orders.preset: " in said
