"""Every variant of the models gets the verdict it has to get, and verdicts are not to be had by accident."""

import concurrent.futures
import os
import re

import pytest

from tests.model import models


def parameters():
    for variant in models.VARIANTS:
        yield pytest.param(variant, id=variant.name.replace(" ", "_"), marks=pytest.mark.deep if variant.deep else ())


@pytest.fixture(scope="module")
def outcomes(request):
    """A search for each variant of this run, on all cores."""
    chosen = [item.callspec.params["variant"] for item in request.session.items
              if "variant" in getattr(getattr(item, "callspec", None), "params", ())]
    pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count())
    yield {variant.name: pool.submit(models.check, variant) for variant in chosen}
    pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("variant", parameters())
def test_variant_gets_its_verdict(variant, outcomes, request):
    outcome = outcomes[variant.name].result()
    request.node.user_properties.append(("model", models.line(variant, outcome)))
    assert outcome.verdict == variant.expected, outcome.detail


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


@pytest.mark.parametrize("model", ["claim", "lease", "pull", "wake"])
def test_every_mistake_and_check_of_a_model_is_tried(model):
    """Names in #ifdef and defined(), less those that a line of the file itself defines."""
    text = read(os.path.join(models.FOLDER, f"{model}.pml"))
    named = set(re.findall(r"#ifn?def (\w+)", text)) | set(re.findall(r"defined\((\w+)\)", text))
    own = set(re.findall(r"#define (\w+)", text))
    flags = [flag for variant in models.VARIANTS if variant.model == model for flag in models.definitions(variant)]
    tried = {flag[2:].split("=")[0] for flag in flags}
    assert named - own == tried - own


@pytest.mark.parametrize("model", ["claim", "lease", "pull", "wake"])
def test_every_check_can_fail(model):
    held = {check for v in models.VARIANTS if v.model == model and v.expected == models.HOLDS for check in v.checks.split()}
    failed = {check for v in models.VARIANTS if v.model == model and v.expected == models.FAILS for check in v.checks.split()}
    assert failed <= held
    elsewhere = {"lease": {"LOSS"}, "pull": {"LOSS", "ORDER", "EXCLUSION", "LIVENESS"}}  # as in claim.pml, which fails by them
    assert held - failed <= elsewhere.get(model, set())


def test_a_search_cut_short_is_no_verdict(monkeypatch):
    small = models.VARIANTS[0]._replace(flags="EVENTS=1 FAULTS=0")
    assert models.check(small).verdict == models.HOLDS
    monkeypatch.setattr(models, "DEPTH_MAX", 10)
    assert models.check(small).verdict == "truncated"
    monkeypatch.setattr(models, "DEPTH_MAX", 20_000)
    monkeypatch.setattr(models, "MEMORY_MAX_MB", 1)
    assert models.check(small).verdict == "truncated"


@pytest.mark.parametrize("output, verdict", [
    ("State-vector 44 byte, depth reached 9, errors: 0\n   12 states, stored\n", models.HOLDS),
    ("pan:1: assertion violated (a) (at depth 3)\nerrors: 1\n   12 states, stored\n", models.FAILS),
    ("pan:1: invalid end state (at depth 3)\nerrors: 1\n   12 states, stored\n", "broken"),
    ("error: max search depth too small\nerrors: 0\n   12 states, stored\n", "truncated"),
    ("pan: reached -DMEMLIM bound\nerrors: 0\n   12 states, stored\n", "truncated"),
    ("", "truncated"),
])
def test_output_is_judged(output, verdict):
    assert models.judge(output, liveness=False)[0] == verdict


def test_a_mutant_that_runs_into_a_deadlock_is_not_the_failure_that_was_asked_for():
    output = "pan:1: assertion violated (a) (at depth 3)\nerrors: 1\n   12 states, stored\n"
    assert models.judge(output, liveness=True)[0] == "broken"
