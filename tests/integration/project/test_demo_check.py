"""The demo's proof can fail: every way in which a file could be wrong is found."""

import json
import os
import subprocess
import sys

import pytest

from bench.demo.proof import STATUSES
from tests.support.process import REPO

ORDERS = 3


def line_of(event_id, order, status):
    return {"id": event_id, "key": str(order), "type": status, "destination": f"orders.{status}",
            "payload": {"id": event_id, "order_id": order, "status": status, "created_at": "2026-11-21T10:00:00+00:00"},
            "headers": None, "created_at": "2026-11-21T10:00:00.000000Z", "attempt": 1}


@pytest.fixture
def lines():
    """What a faultless run writes: the orders take turns."""
    return [line_of(1 + step * ORDERS + order, order + 1, status)
            for step, status in enumerate(STATUSES) for order in range(ORDERS)]


@pytest.fixture
def prove(tmp_path):
    """prove(lines, end) -> (exit code, output) of the proof as a command."""
    def run(lines, end="\n"):
        path = tmp_path / "events.jsonl"
        path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + end)
        command = [sys.executable, os.path.join(REPO, "bench", "demo", "proof.py"), str(path), str(ORDERS)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr
    return run


def test_faultless_file_passes(prove, lines):
    assert prove(lines) == (0, "30 events, each once, 3 orders, each in order\n")


def test_missing_line_is_found(prove, lines):
    code, text = prove(lines[:-1])
    assert code == 1 and "order 3 has 9 events, not 10" in text and "29 different events" in text


def test_line_that_came_twice_is_found(prove, lines):
    code, text = prove([*lines, lines[4]])
    assert code == 1 and "line 31: event 5 of order 2 came before" in text


def test_duplicate_that_hides_a_missing_line_is_found(prove, lines):
    code, text = prove([*lines[:-1], lines[0]])
    assert code == 1 and "event 1 of order 1 came before" in text and "29 different events" in text


def test_two_lines_of_one_order_that_changed_places_are_found(prove, lines):
    lines[0], lines[ORDERS] = lines[ORDERS], lines[0]
    code, text = prove(lines)
    assert code == 1 and "event 1 of order 1 came after 4" in text and "order 1 became paid when created was due" in text


def test_lines_of_different_orders_may_change_places(prove, lines):
    lines[0], lines[1] = lines[1], lines[0]
    assert prove(lines)[0] == 0


def test_statuses_that_changed_places_under_ids_in_order_are_found(prove, lines):
    lines[0], lines[ORDERS] = line_of(1, 1, "paid"), line_of(4, 1, "created")
    code, text = prove(lines)
    assert code == 1 and "order 1 became paid when created was due" in text


def test_event_that_nobody_made_is_found(prove, lines):
    code, text = prove([*lines, line_of(31, 4, "created")])
    assert code == 1 and "there is no order 4" in text


@pytest.mark.parametrize("member, value", [("type", "lost"), ("key", "2"), ("destination", "orders.lost"), ("id", 99)])
def test_line_that_does_not_agree_with_its_row_is_found(prove, lines, member, value):
    lines[0][member] = value
    code, text = prove(lines)
    assert code == 1 and "does not agree with its row" in text


@pytest.mark.parametrize("torn", ['{"id":1,"key":"1"', "", "{}", "null", '{"id":1,"key":null}'])
def test_line_that_is_no_event_is_found(prove, lines, torn):
    code, text = prove([torn, *lines])
    assert code == 1 and "line 1: not an event" in text


def test_last_line_without_its_end_is_found(prove, lines):
    code, text = prove(lines, end="")
    assert code == 1 and "line 30: not an event" in text


def test_empty_file_is_found(prove):
    code, text = prove([], end="")
    assert code == 1 and "0 different events" in text
