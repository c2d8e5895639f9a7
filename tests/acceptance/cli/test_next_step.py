"""What to do next about a run is one answer, wherever it is asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kfm.model.next_steps import NextStep
from kfm.reports.next_steps import step_of_run
from tests.integration.web.api.world import World
from tests.integration.web.console.reading import Parsed, Reader

Kfm = Callable[..., Any]
ATTEMPTS_SEEN_MAX = 30
PERMANENT = 'def publish(context):\n    raise ValueError("no such column")\n'
PASSING = 'def publish(context):\n    raise TimeoutError("no answer")\n'


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path / "project", people=False)
    monkeypatch.chdir(made.folder)
    return made


def step_now(world: World) -> tuple[str, NextStep]:
    """The run, and what the one function says of it."""
    with world.context.reader() as ledger:
        (run,) = ledger.runs(limit=10)
        step = step_of_run(ledger, run, ledger.now_ms())
    assert step is not None
    return run.run_id, step


def reached(kfm: Kfm, world: World, state: str) -> str:
    """Bring the run into this state; what the last `kfm run` said of it."""
    (world.folder / "broken.py").write_text(PERMANENT if state == "correct" else PASSING)
    for _ in range(ATTEMPTS_SEEN_MAX):
        said = kfm("run", "--source", "broken").err
        run_id, step = step_now(world)
        if state == "approve" and step.code == "release":
            kfm("quarantine", "release", run_id, "--rationale", "repaired")
        elif step.code == state:
            return said
    raise AssertionError(f"no run came to {state}")


@pytest.mark.req("CLI-1", "RS-12")
@pytest.mark.parametrize("state", ["retry", "correct", "release", "approve"])
def test_every_surface_prints_the_same_step(kfm: Kfm, world: World, state: str) -> None:
    """`run`, `status`, `explain`, `quarantine list` and `show`, the API and the console agree."""
    said = reached(kfm, world, state)
    run_id, step = step_now(world)
    assert step.code == state
    assert f"next: {step.line}" in said.splitlines()
    assert step.line in kfm("status").out
    assert step.line in kfm("explain", run_id).out
    document = msgspec.to_builtins(step)
    (failing,) = world.get("/status", None)["needs_attention"]
    assert failing["next_step"] == document
    page = Parsed(Reader(world.context).ask(f"runs/{run_id}").text).text
    assert step.command in page
    assert step.sentence in page
    if state == "retry":
        return  # it is not in quarantine
    assert step.command in kfm("quarantine", "list").out
    assert step.line in kfm("quarantine", "show", run_id).out
    (held,) = world.get("/quarantine", None)["held"]
    assert held["next_step"] == document
    page = Parsed(Reader(world.context).ask(f"held/{held['held_id']}").text).text
    assert step.command in page
