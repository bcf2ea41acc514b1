"""What the bench says of its numbers: which limits they keep, and which run they come from."""

import contextlib
import importlib
import json
import os
import re
import time
import types
import xml.etree.ElementTree

import pytest

from bench import cpu, latency, page, plot, results, run, table, turns, watched, workers
from bench.answer import Answer, BenchFailed
from bench.drain import Drain
from bench.harness import Bench, Run
from tests.support.process import REPO

FACTS = {"made": "2026-11-21T10:00:00+00:00", "load_before": 0.1, "quick": False, "pairs": 5, "commit": "abc1234", "cpus": 2, "cpu": "CPU",
         "postgres": "15.1"}


def answer(rates, floors=(), number=1, **limits):
    return Answer("drain", "events/s", list(rates), list(floors), number=number, **limits)


@pytest.mark.parametrize("rate, more, reached", [(0.95, True, "aim"), (0.94, True, "must"), (0.80, True, "must"), (0.79, True, "no"),
                                                 (0.5, False, "aim")])
def test_ratio_is_held_against_must_and_aim(rate, more, reached):
    limits = {"must": 0.80, "aim": 0.95} if more else {"must": 3, "aim": 2}
    assert answer([rate * 100], [100], more=more, **limits).reached == reached


@pytest.mark.parametrize("value, more, said", [(0.8984, True, "0.898"), (0.9004, True, "0.90"), (0.85, True, "0.85"), (1.0949, False, "1.09"),
                                               (0.904, False, "0.904"), (122.4, True, "122")])
def test_ratio_is_not_rounded_across_a_bound(value, more, said):
    assert table.ratio({"ratio": value, "must": 0.9, "aim": None, "more": more}) == said


@pytest.mark.parametrize("worst, rates, floors, more, reached", [
    (False, [1, 2, 9], [], False, "must"), (True, [1, 2, 9], [], False, "no"), (True, [1, 2, 3], [], False, "must"),
    (True, [90, 90, 20], [100, 100, 100], True, "no"), (False, [90, 90, 20], [100, 100, 100], True, "aim")])
def test_what_must_not_happen_once_is_judged_by_the_worst_run(worst, rates, floors, more, reached):
    must, aim = (0.5, 0.9) if more else (3, 1)
    assert answer(rates, floors, more=more, worst=worst, must=must, aim=aim).reached == reached


@pytest.mark.parametrize("value, must, aim, reached", [(2, 3, 1.5, "must"), (4, 3, 1.5, "no"), (1.5, 3, 1.5, "aim"), (11, None, 10, "no"),
                                                       (3, 3, None, "must"), (3, None, None, None)])
def test_value_without_a_floor_is_held_against_them_itself(value, must, aim, reached):
    alone = answer([value], must=must, aim=aim, more=False)
    assert alone.reached == reached and alone.ratio is None and alone.floor is None


def test_ratio_is_the_median_of_the_pairs():
    pairs = answer([10, 30, 80], [100, 100, 200])
    assert pairs.ratio == 0.3 and pairs.rate == 30 and pairs.floor == 100


def test_runs_that_are_no_pairs_are_refused():
    with pytest.raises(BenchFailed, match="2 runs beside 1"):
        answer([1, 2], [1])
    with pytest.raises(BenchFailed):
        answer([])


def test_question_asked_again_replaces_all_its_entries_and_no_others():
    before = results.merge([], [answer([1], number=1), answer([2], number=5), answer([3], number=5)], FACTS)
    after = results.merge(before, [answer([4], number=5)], {**FACTS, "made": "later"})
    assert [(entry["number"], entry["rate"], entry["made"]) for entry in after] == [(1, 1.0, FACTS["made"]), (5, 4.0, "later")]


def test_results_are_read_as_they_were_written(tmp_path):
    path = str(tmp_path / "latest.json")
    assert results.read(path) == []
    entries = results.merge([], [answer([123456.7], [234567.8], must=0.5)], FACTS)
    results.write(entries, path)
    assert results.read(path) == entries and json.loads((tmp_path / "latest.json").read_text()) == entries


def test_table_has_a_line_for_each_entry():
    lines = list(table.lines(results.merge([], [answer([90_000, 80_000], [100_000, 100_000], must=0.8, aim=0.95), answer([2])], FACTS)))
    assert len(lines) == 3
    assert "100,000" in lines[1] and "80,000 .. 90,000" in lines[1] and ">= 0.8" in lines[1] and lines[1].endswith("must")
    assert lines[2].split()[-4:] == ["-", "-", "-", "-"]


# ---- how long a run takes ----

@pytest.mark.parametrize("seconds, quick, whole, said", [
    (480, True, True, "== done in 480 s: the 8 minutes that are promised are kept"),
    (491, True, True, "== done in 491 s: longer than the 8 minutes that are promised, by 11 s"),
    (3541, False, True, "== done in 3541 s: the 60 minutes that are promised are kept"),
    (3660, False, True, "== done in 3660 s: longer than the 60 minutes that are promised, by 60 s"),
    (9000, True, False, "== done in 9000 s")])
def test_run_of_all_questions_says_whether_it_kept_to_its_time(seconds, quick, whole, said):
    assert run.time_said(seconds, quick, whole) == said


@pytest.mark.parametrize("path", ["bench/README.md", "docs/performance.md"])
def test_documentation_promises_the_time_that_a_run_is_held_against(path):
    text = read(os.path.join(REPO, path))
    assert f"in {run.PROMISED_MINUTES['full']} minutes" in text and f"in {run.PROMISED_MINUTES['quick']} minutes" in text


# ---- what is too short to be measured ----

@pytest.mark.parametrize("seconds, overhead_s, long", [(0.21, 0.1, True), (0.19, 0.1, False), (0.06, 0, True), (0.04, 0, False)])
def test_run_of_which_starting_is_more_than_a_third_is_refused(seconds, overhead_s, long):
    if long:
        Bench.expect_long(None, "drain", seconds, overhead_s)
        return
    with pytest.raises(BenchFailed, match="drain: .* too short to be measured"):
        Bench.expect_long(None, "drain", seconds, overhead_s)


# ---- what claims take ----

def test_claims_without_events_count_until_the_last_event_is_there():
    claims = [(0.1, 0, 900), (0.2, 5, 100), (0.3, 0, 800), (0.4, 7, 100), (0.5, 0, 700)]
    assert watched.to_last_event(claims) == claims[:4]


# ---- what is used while there is nothing to do ----

def test_a_process_has_used_what_the_kernel_says_to_less_than_a_tick():
    time.sleep(0.001)  # the kernel counts when a thread stops
    before, used = cpu.of_process(os.getpid()), time.process_time()
    while time.process_time() - used < cpu.TICK_S / 5:
        pass
    time.sleep(0.001)
    assert cpu.TICK_S / 5 <= cpu.of_process(os.getpid()) - before < cpu.TICK_S


def test_a_relay_at_rest_is_judged_by_its_statements_and_by_what_the_server_uses_beyond_its_own():
    question = importlib.import_module("bench.questions.19_rest")
    alone = [question.Window(10.0, share) for share in (0.02, 0.10, 0.03)]
    rest = question.Rest(2.0, alone, [question.Window(10.0, server, own, calls) for server, own, calls in ((0.02, 0.01, 0), (0.08, 0.0, 1), (0.03, 0.0, 0))])
    polled = question.Rest(3.0, alone, [question.Window(10.0, 0.53, 0.2, 87)] * 3)
    statements, share, *others = question.answers_of_rests({"rest": rest}, polled)
    assert statements.rates == [0, 0.1, 0] and statements.reached == "aim" and statements.note == "30 s, 2.0 s after the start of the relay"
    assert [round(one, 3) for one in share.rates] == [0.01, 0.05, 0] and share.reached == "must"
    assert [(round(one.rate, 3), one.reached) for one in others] == [(8.7, None), (0.7, None)]


# ---- River beside the relay ----

def ask_ordinary_day(monkeypatch, absent="", failure=None):
    """The answers of question 18, with a relay and a River that are not there, and what was said."""
    question, said = importlib.import_module("bench.questions.18_ordinary_day"), []

    def with_river(*_):
        if failure:
            raise failure
        return question.Day(30.0, 8.0, 6.0, 19.0, 24.0)

    monkeypatch.setattr(question, "of_relay", lambda _: [answer([1], number=18, must=2, more=False)])
    monkeypatch.setattr(question, "share_of_server", lambda *_: 24.0)
    monkeypatch.setattr(question, "with_river", with_river)
    monkeypatch.setattr(question, "REST_S", 0)
    monkeypatch.setattr(question.river_worker, "reason_absent", lambda: absent)
    monkeypatch.setattr(question.river_worker.subprocess, "run", lambda *_, **__: types.SimpleNamespace(returncode=0))
    db = types.SimpleNamespace(superuser_dsn="", query=lambda _: [])
    return question.ask(types.SimpleNamespace(run=Run(True, 1, None), say=said.append, db=db)), said


def test_river_is_shown_beside_the_relay_without_a_target(monkeypatch):
    (relay, *river), _ = ask_ordinary_day(monkeypatch)
    assert relay.note == ""
    assert [(one.question, one.rate) for one in river] == [
        (f"River: {name} at {rate}/s", value) for rate in ("200", "1,000") for name, value in (("cost", 6), ("p50", 6), ("p99", 19))]
    assert {one.reached for one in river} == {None}
    assert river[0].note == "inserts alone 24.0 %; the worker itself 8.00 %" and "plain SQL" in river[1].note


@pytest.mark.parametrize("absent, failure, why", [
    ("go is not installed", None, "go is not installed"), ("", BenchFailed("its worker ended with 1\nmore"), "its worker ended with 1"),
    ("", TimeoutError(), "TimeoutError")])
def test_question_18_goes_on_without_river_and_says_so(monkeypatch, absent, failure, why):
    answers, said = ask_ordinary_day(monkeypatch, absent, failure)
    assert [(one.question, one.note) for one in answers] == [("drain", f"River is NOT beside the relay: {why}")]
    assert said[-1].startswith(f"!! River is NOT beside the relay: {why}")


@pytest.mark.parametrize("rate, each", [(10, 1), (200, 1), (1000, 5)])
def test_river_is_notified_as_often_as_its_client_would(rate, each):
    insert = importlib.import_module("bench.questions.18_ordinary_day").river_insert(rate)
    assert f"id % {each} = 0" in insert and "EACH" not in insert


# ---- how much came ----

@pytest.mark.parametrize("reached, kept", [(1000, True), (980, True), (979, False)])
def test_latency_at_less_than_98_percent_of_its_rate_is_refused(reached, kept):
    if kept:
        latency.expect_rate(reached)
        return
    with pytest.raises(BenchFailed, match="the producers fell behind: 979 of 1,000 events/s"):
        latency.expect_rate(reached)


def test_question_5_fails_when_a_run_has_less_than_its_rate(monkeypatch):
    """The first run warms up, and may."""
    question = importlib.import_module("bench.questions.05_latency")
    monkeypatch.setattr(question, "round_trip_ms", lambda *_: (1, 2))
    monkeypatch.setattr(question.servers, "Redis", lambda: contextlib.nullcontext(types.SimpleNamespace(url="")))
    bench = types.SimpleNamespace(run=Run(True, 2, None), say=lambda _: None)
    for rates, answered in (([900, 1000, 990], True), ([1000, 1000, 970], False)):
        came = iter(rates)
        monkeypatch.setattr(question, "of_relay", lambda *_, came=came: (3, 9, next(came)))
        if answered:
            assert question.ask(bench)[0].note == "with `latency: 1ms`, at 990 events/s or more in each run"
            continue
        with pytest.raises(BenchFailed, match="970 of 1,000"):
            question.ask(bench)


# ---- how long an event waits beside oldest-first ----

def test_short_waits_of_oldest_first_count_as_a_second():
    question = importlib.import_module("bench.questions.10_fairness")
    came, answered = {1: 0.0, 2: 0.0, 3: 3.5}, {1: 3.0, 2: 0.5, 3: 3.25}
    assert question.longest_wait(came, answered) == 3
    assert question.longest_wait(came, answered, 0) == 6


# ---- how many events of a hot key are measured ----

@pytest.mark.parametrize("rate, count", [(190, 300), (5_000, 5_000), (80_000, 50_000)])
@pytest.mark.parametrize("disturbed", [(), (0,), (0, 3, 4)])
def test_hot_key_is_measured_for_the_time_there_is_whatever_its_first_runs_cost(monkeypatch, rate, count, disturbed):
    """300 events that took 0.6 s, because their broker had just started, once were all that was measured."""
    question = importlib.import_module("bench.questions.06_hot_key")
    runs = iter(range(100))

    def drain(_, hot):
        return hot.events / (0.1 + hot.events / rate + (0.6 if next(runs) in disturbed else 0))

    monkeypatch.setattr(question, "drain_relay", drain)
    assert question.affordable(None, Drain("hot", 50_000, 1, ""), 50_000, 1) == pytest.approx(count, abs=100)


# ---- ways that are measured in turn ----

def test_each_way_has_each_place_once():
    orders = [turns.rotated(["a", "b", "c"], number) for number in range(4)]
    assert orders == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]


def test_run_is_held_against_the_floors_before_and_after_it():
    """On a machine that gets slower with each run, where both ways do half of what the floor does."""
    moments, order, said = iter(range(100, 0, -1)), [], []

    def run(name, share):
        order.append(name)
        return share * next(moments)

    ways = {name: lambda name=name: run(name, 0.5) for name in ("a", "b")}
    measured = turns.between_floors(lambda: run("floor", 1), ways, 2, lambda number, runs: said.append((number, runs)))
    assert order == ["floor", "a", "floor", "b", "floor", "b", "floor", "a", "floor"]
    assert measured == {"a": ([99, 93], [49.5, 46.5]), "b": ([97, 95], [48.5, 47.5])}
    assert said == [(1, {"a": (99, 49.5), "b": (97, 48.5)}), (2, {"a": (93, 46.5), "b": (95, 47.5)})]
    assert answer(*reversed(measured["a"])).ratios == [0.5, 0.5]


# ---- workers ----

@pytest.mark.deep
@pytest.mark.superuser("pgbench makes tables of its own")
def test_what_workers_cost_is_measured(capsys):
    workers.main("2000", "1")
    said = capsys.readouterr().out
    assert len(re.findall(r"take and done_all by \d+: [1-9][\d,]* tasks/s", said)) == 3
    assert len(re.findall(r"beside 2,000 tasks/s, by \d+: [1-9]", said)) == 2 and len(re.findall(r"median \d", said)) == 4
    assert re.search(r"200 tasks that come after .*: \d+\.\d s\nfrom then on, by 10: take \d+", said)


# ---- pages and plots ----

PAGE = """before
<!-- bench:all -->
old
<!-- /bench -->
<!-- bench:1 -->
<!-- /bench -->
between
<!-- bench:7 -->
<!-- /bench -->
after
"""


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def some_entries():
    missed = answer([50, 40], [100, 100], number=1, must=0.8, aim=0.95)
    alone = Answer("p99 <by itself>", "ms", [3, 5, 4], number=5, aim=10, more=False)
    nothing = Answer("buffers", "", [0], number=9, must=50, aim=20, more=False)
    return results.merge([], [missed, alone, nothing], FACTS)


def test_table_for_users_has_the_middle_of_each_number_with_a_target():
    without = Answer("no target", "", [1], number=9)
    text = page.fill("<!-- bench:table -->\n<!-- /bench -->\n", [*some_entries(), *results.merge([], [without], FACTS)])
    assert "| 1. drain | 45.0/s | 0.45 **no** |\n" in text and "no target" not in text


def test_page_says_what_was_reached_and_keeps_what_is_written_around_it():
    text = page.fill(PAGE, some_entries())
    assert text.startswith("before\n<!-- bench:all -->\nOf 3 numbers with a target, 2 reach the aim, 0 more what they must, and 1 do not.\n")
    assert "| drain | 100 (100 .. 100) | 45.0 (40.0 .. 50.0) | events/s | 0.45 (0.40 .. 0.50) | >= 0.8 | >= 0.95 | **no** |" in text and "old" not in text
    assert "between\n<!-- bench:7 -->\nNot measured yet.\n<!-- /bench -->\nafter\n" in text
    assert page.fill(text, some_entries()) == text


def test_page_tells_entries_of_different_runs_apart():
    other = results.merge(some_entries(), [answer([1], number=7, must=1)], {**FACTS, "commit": "def5678", "quick": True})
    text = page.fill(PAGE, other)
    assert "commit abc1234 (questions 1, 5, 9), runs (question 1: 2; 5: 3; 9: 1)" in text
    assert "commit def5678 (question 7), runs (question 7: 1), `--quick`" in text


def test_page_says_how_many_runs_a_number_is_of():
    some = [answer([1] * runs, number=number) for number, runs in ((1, 5), (8, 10), (8, 1), (8, 5), (9, 1), (11, 5))]
    assert page.runs_said(results.merge([], some, FACTS)) == "5 runs of each (question 8: 1, 5 or 10; 9: 1)"
    assert page.runs_said(results.merge([], some[:1], FACTS)) == "5 runs of each"


def test_page_says_what_is_subtracted_from_the_relays_times():
    entries = results.merge([], [answer([1], number=1, overhead_s=0.0634, note="by itself"), answer([1], number=1)], FACTS)
    assert page.overhead_of(entries) == "\nStarting and ending (0.06 s) are not in the relay's times.\n"
    assert page.overhead_of(entries[1:]) == ""
    some = results.merge([], [answer([90, 80], [100, 100], number=2, overhead_s=0.1, events=90),
                              answer([90, 80], [100, 100], number=2, overhead_s=0.2, events=180)], FACTS)
    assert page.overhead_of(some) == "\nStarting and ending (0.10 .. 0.20 s) are not in the relay's times; with them the ratio is 0.78, 0.78.\n"


def test_page_has_each_note_once_with_the_numbers_that_it_is_of():
    entries = results.merge([], [answer([1], number=1, note="by itself"), answer([1], number=1),
                                 Answer("other", "events", [1], number=1, note="by itself"), answer([1, 2], number=3, worst=True)], FACTS)
    assert [page.note_of(entry) for entry in entries] == ["by itself", "", "by itself", "judged by the worst run"]
    assert page.notes_of(entries[:3]) == "\ndrain; other: by itself.\n"
    assert page.notes_of(entries[1:2]) == ""


def test_plots_are_xml_whatever_the_numbers():
    none = Answer("delivered twice", "events", [2], must=0, aim=0, more=False, number=1)
    memory = Answer("peak memory", "MB", [50], must=64, more=False, number=9)
    plots = plot.of_each([*some_entries(), *results.merge([], [none, memory], FACTS)])
    assert sorted(plots) == ["01.svg", "05.svg", "09.svg", "all.svg"]
    for text in plots.values():
        xml.etree.ElementTree.fromstring(text)


@pytest.mark.parametrize("path", page.PAGES, ids=os.path.basename)
def test_pages_agree_with_the_results(path):
    """After a change of either: python3 -m bench.page"""
    text = read(path)
    assert page.blocks(text) and text == page.fill(text, results.read())


def test_plots_agree_with_the_results():
    for name, text in plot.of_each(results.read()).items():
        assert text == read(os.path.join(os.path.dirname(results.PATH), name)), name


def test_every_question_has_its_place_on_the_page():
    named = page.blocks(read(page.PAGE))
    assert [name for name in named if name.isdigit()] == [str(number) for number in run.questions()]
    assert {str(number) for number in run.questions()} <= set(named)
