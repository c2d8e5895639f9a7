"""Replays that are killed in the middle, and two at once: every unit of the plan comes back exactly once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kfm.app import open_app
from kfm.config.loader import load
from kfm.model.replays import ReplaySpec, Selection
from kfm.nodd.replay import plan_of
from tests.conformance.units.scene import Scene, taken, undone

ROOT = Path(__file__).resolve().parents[2]
UNITS = 720
KILLS = 5
CONFIG = """\
version: 1
environment: crash
{store}
ingest: {{replays_max: 1000}}
"""
STORE = "KFM_REPLAYS_STORE"
# Says when it is about to begin, so that a kill meets the work and not the interpreter's start.
RUNNER = """
import sys, msgspec
from kfm.config.loader import load
from kfm.model.replays import ReplayPlan
from kfm.nodd.replay import ReplayPace
from kfm.app import open_app
from kfm.nodd.replay import person, run_plan
with open_app(load(None, {})) as app:
    plan = msgspec.json.decode(open("plan.json", "rb").read(), type=ReplayPlan)
    by = person(app, "crash", None, None)
    print("ready", flush=True)
    carried = run_plan(app, plan, ReplayPace(batch_size=3), by, lambda _units: print("step", flush=True))
    print(msgspec.json.encode(carried.receipts).decode(), flush=True)
"""


def _pair(project: Path) -> list[subprocess.Popen[str]]:
    runners = [
        subprocess.Popen(
            [sys.executable, "-c", RUNNER],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=project,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        )
        for _ in range(2)
    ]
    for runner in runners:
        assert runner.stdout is not None
        assert runner.stdout.readline() == "ready\n", runner.communicate()[1]
    return runners


def _rest(runner: subprocess.Popen[str]) -> tuple[str, str]:
    """What it prints after "ready"; `communicate` would lose what was buffered together with that line."""
    assert runner.stdout is not None
    out = runner.stdout.read()
    return out, runner.communicate(timeout=120)[1]


def _given_up(scene: Scene) -> None:
    names = [f"u{number:03}" for number in range(UNITS)]
    scene.take(*(taken(name) for name in names))
    claimed = scene.claim(limit=UNITS)
    assert len(claimed) == UNITS
    scene.end(*(undone(one, "spent") for one in claimed))


@pytest.mark.slow
@pytest.mark.req("WAL-13", "WAL-14")
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_killed_replay_goes_on_when_its_plan_is_run_again(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Two at a time, killed whenever: one grant, one transition and one receipt for each unit, in the end."""
    rng = random.Random(20260101)
    store = ""
    if backend == "postgresql":
        monkeypatch.setenv(STORE, request.getfixturevalue("postgres_database"))
        store = f"store: env:{STORE}"
    (tmp_path / "kfm.yml").write_text(CONFIG.format(store=store))
    monkeypatch.chdir(tmp_path)
    with open_app(load(None, {})) as app:
        store_inside: Any = app.kernel.store
        scene = Scene(store_inside)
        _given_up(scene)
        spec = ReplaySpec(kfm="replay-spec/1", selection=Selection(datasets=("hrrr",)), reason="incident")
        plan = plan_of(app, spec)
        assert len(plan.units) == UNITS
        (tmp_path / "plan.json").write_bytes(msgspec.json.encode(plan))
        met = 0
        for _ in range(KILLS):
            runners = _pair(tmp_path)
            for _ in range(rng.randrange(6)):
                assert runners[0].stdout is not None
                runners[0].stdout.readline()
            time.sleep(rng.random() * 0.005)
            for runner in runners:
                runner.send_signal(signal.SIGKILL)
                runner.communicate()
            left = scene.store.replay_reader().tally(plan.replay_id)
            met += 0 < left.get("", 0) < UNITS
        told = [_rest(runner) for runner in _pair(tmp_path)]
        assert [json.loads(out.splitlines()[-1]) for out, _ in told] == [{"replayed": UNITS}] * 2, told
        events = Counter(
            move.event for unit in plan.units for move in app.ledger.unit_reader().history_of(unit.wal_id)
        )
        assert events["replayed"] == UNITS
        assert scene.sql("SELECT DISTINCT status, grants, attempts FROM units") == [("pending", 2, 2)]
        assert scene.count("replays:incident") == UNITS
        kinds = [row[0] for row in scene.sql("SELECT kind FROM governance ORDER BY number")]
        assert [kind for kind in kinds if kind != "replay-resumed"] == ["replay", "replay-ended"]
        assert met, "no kill met a replay in the middle"
        scene.check()
