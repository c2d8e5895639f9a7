"""What to do next about a run is one answer, wherever it is asked."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kfm.model.errors import KfmError
from kfm.model.next_steps import NextStep
from kfm.reports.next_steps import step_of_run
from tests.integration.web.api.world import CONFIG, World
from tests.integration.web.console.reading import Parsed, Reader

Kfm = Callable[..., Any]
ATTEMPTS_SEEN_MAX = 30
PERMANENT = 'def publish(context):\n    raise ValueError("no such column")\n'
PASSING = 'def publish(context):\n    raise TimeoutError("no answer")\n'
STOPPING = """\
import sqlite3

def publish(context):
    ledger = sqlite3.connect(".kfm/kfm.db")
    with ledger:
        ledger.execute("INSERT INTO switches VALUES ('all', 'stopped', 'a drill', 'ann', 1)")
        ledger.execute("UPDATE counters SET value = value + 1 WHERE name = 'policy_epoch'")
    ledger.close()
"""
RESTRICTED = CONFIG.replace(
    "dataset: burials, kind: files, folder: incoming, window: P1D}",
    "dataset: burials, kind: files, folder: incoming, window: P1D, pipeline: broken.py:publish}",
)
STATES = ["retry", "correct", "release", "approve", "lift", "request-approval", "approve-attempt", "approved"]
Person = Callable[[str], None]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr("tests.integration.web.api.world.CONFIG", RESTRICTED)
    made = World(tmp_path / "project", people=False)
    monkeypatch.chdir(made.folder)
    return made


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Person:
    """Who runs the commands."""
    return lambda name: monkeypatch.setattr("kfm.config.loader.actor", lambda: name)


def step_now(world: World) -> tuple[str, NextStep]:
    """The run, and what the one function says of it."""
    with world.context.reader() as ledger:
        (run,) = ledger.runs(limit=10)
        step = step_of_run(ledger, run, ledger.now_ms())
    assert step is not None
    return run.run_id, step


def approval(kfm: Kfm, person: Person, *decision: str) -> None:
    """One attempt at the restricted work is requested, and perhaps approved."""
    person("ann")
    requested = kfm("approvals", "request", "--source", "mound", "--rationale", "yearly", "--json")
    if "approve" in decision:
        person("bob")
        name = requested.document["request"]["request_id"]
        assert kfm("approvals", "approve", name, "--rationale", "yes").code == 0
        person("ann")


def reached(kfm: Kfm, world: World, person: Person, state: str) -> tuple[str, str]:
    """Bring the run into this state; the code of its step, and what the last `kfm run` said of it."""
    code = {"lift": STOPPING, "correct": PERMANENT}.get(state, PASSING)
    (world.folder / "broken.py").write_text(code)
    if state in ("request-approval", "approve-attempt", "approved"):
        approval(kfm, person, "approve")
        said = kfm("run", "--source", "mound").err
        if state != "request-approval":
            approval(kfm, person, *(["approve"] if state == "approved" else []))
        return {"approve-attempt": "approve", "approved": "retry"}.get(state, state), said
    for _ in range(ATTEMPTS_SEEN_MAX):
        said = kfm("run", "--source", "broken").err
        run_id, step = step_now(world)
        if state == "approve" and step.code == "release":
            kfm("quarantine", "release", run_id, "--rationale", "repaired")
        elif step.code == state:
            return state, said
    raise AssertionError(f"no run came to {state}")


@pytest.mark.req("CLI-1", "RS-12")
@pytest.mark.parametrize("state", STATES)
def test_every_surface_prints_the_same_step(kfm: Kfm, world: World, person: Person, state: str) -> None:
    """`run`, `status`, `show`, `explain`, `quarantine list` and `show`, the API and the console agree."""
    code, said = reached(kfm, world, person, state)
    run_id, step = step_now(world)
    assert step.code == code
    if state not in ("approve-attempt", "approved"):  # said before that was requested
        assert f"next: {step.line}" in said.splitlines()
    assert step.line in kfm("status").out
    assert step.line in kfm("show", run_id).out
    explained = kfm("explain", run_id).out
    assert step.line in explained
    document = msgspec.to_builtins(step)
    (failing,) = world.get("/status", None)["needs_attention"]
    assert failing["next_step"] == document
    assert world.get(f"/runs/{run_id}", None)["next_step"] == document
    page = Parsed(Reader(world.context).ask(f"runs/{run_id}").text).text
    assert step.command in page
    assert step.sentence in page
    if state in ("retry", "lift"):
        return  # it is not in quarantine
    assert step.command in kfm("quarantine", "list").out
    assert step.line in kfm("quarantine", "show", run_id).out
    (held,) = world.get("/quarantine", None)["held"]
    assert held["next_step"] == document
    page = Parsed(Reader(world.context).ask(f"held/{held['held_id']}").text).text
    assert step.command in page


@pytest.mark.req("CLI-1")
@pytest.mark.parametrize("state", ["retry", "correct", "release", "lift", "request-approval"])
def test_one_command_is_printed(kfm: Kfm, world: World, person: Person, state: str) -> None:
    """Neither `kfm run` nor `kfm explain` prints another command beside it; a reason is a sentence."""
    _, said = reached(kfm, world, person, state)
    run_id, step = step_now(world)
    assert re.findall(r"`(kfm [^`]+)`", said) == [step.command]
    assert "\nfix: " not in said
    explained = kfm("explain", run_id).out
    beside = {f"kfm explain {KfmError.code}", *re.findall(r"`(kfm explain KFM\d+)`", explained)}
    assert set(re.findall(r"`(kfm [^`]+)`", explained)) - beside == {step.command}
    assert "To unblock" not in explained
    assert ": needs-approval" not in explained
