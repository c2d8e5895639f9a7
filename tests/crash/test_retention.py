"""Retention that is killed in the middle: whole batches are gone, the log is sound, the next pass goes on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kfm.app import open_app
from kfm.config.loader import load
from tests.conformance.units.scene import Scene, done, taken
from tests.conformance.units.test_retention import deliver, evidence, problems

ROOT = Path(__file__).resolve().parents[2]
UNITS, KILLS = 36, 2
STORE = "KFM_RETENTION_STORE"
CONFIG = "version: 1\nenvironment: crash\n{store}\n"
RUNNER = """
from kfm.app import open_app
from kfm.config.loader import load
from tests.conformance.units.test_retention import a_pass
with open_app(load(None, {})) as app:
    app.liveness.claim(app.worker_id)
    made = a_pass(app.store, batch_rows=2)
    made._worker_id, made._is_dead = app.worker_id, app.liveness.is_dead
    for batch in made.steps():
        print(batch.kind, batch.rows, flush=True)
    print("blocked" if made.blocked_by else "ended", flush=True)
"""


def _runner(project: Path) -> subprocess.Popen[str]:
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    return subprocess.Popen(
        [sys.executable, "-c", RUNNER],
        stdout=subprocess.PIPE,
        text=True,
        cwd=project,
        env={**os.environ, "PYTHONPATH": path},
    )


@pytest.mark.slow
@pytest.mark.req("GRO-2")
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_killed_pass_is_taken_up_where_it_was(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Killed after any batch: nothing is half gone, no lease stays, and the pass ends in the end."""
    rng, store = random.Random(19), ""
    if backend == "postgresql":
        monkeypatch.setenv(STORE, request.getfixturevalue("postgres_database"))
        store = f"store: env:{STORE}"
    (tmp_path / "kfm.yml").write_text(CONFIG.format(store=store))
    monkeypatch.chdir(tmp_path)
    with open_app(load(None, {})) as app:
        assert app.store is not None
        scene, met = Scene(app.store), 0
        for number in range(UNITS):
            scene.take(taken(f"u{number}"))
            scene.end(*(done(one) for one in scene.claim()))
            if number % 6 == 5:  # small seals, so that there are many batches
                deliver(app.store)
                app.store.seal("ada", stream="units")
                app.store.seal("ada")
        whole = evidence(app.store)
        for _ in range(KILLS):
            runner = _runner(tmp_path)
            assert runner.stdout is not None
            for _ in range(rng.randrange(1, 5)):
                runner.stdout.readline()
            runner.send_signal(signal.SIGKILL)
            runner.communicate()
            met += evidence(app.store) != whole
            assert problems(app.store) == []
        last = _runner(tmp_path)
        out, _ = last.communicate(timeout=60)
        assert out.splitlines()[-1] == "ended", out
        assert met == KILLS
        assert problems(app.store) == []
        left = evidence(app.store)
        assert left["outbox"] == 0
        assert left["unit_pages"] == UNITS  # the last state of each
