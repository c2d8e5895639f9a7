"""Work that the twin starts: waits, acts, stops and requests, with real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.twin.runtime import TWIN
from tests.twin.test_twin import Run, node, project, run

__all__ = ["node", "run"]  # fixtures

WINDOW = "2026-01-01/P1D"
WAIT_S = 20
FLAKY = """export function work() {
  throw Object.assign(new Error("reset"), { errno: -104, code: "ECONNRESET", syscall: "read" });
}
"""
# Acts outside, tells so, and waits until it may go on.
ACTING = """import { appendFileSync, existsSync } from "node:fs";
export async function work({ inputs, publisher, check }) {
  appendFileSync("acts", "x");
  while (!existsSync("go")) {
    await new Promise((resolve) => setTimeout(resolve, 10));
    CHECK
  }
  await publisher.writeFile("a.csv", inputs[0].read());
}
"""

Begin = Callable[..., subprocess.Popen[str]]
pytestmark = pytest.mark.req("UPD-14")


@pytest.fixture
def begin(node: str, tmp_path: Path) -> Begin:
    """Start the twin, and come back once its pipeline is at work."""

    def call(*words: str, **environ: str) -> subprocess.Popen[str]:
        seen = _acts(tmp_path)
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        process = subprocess.Popen(
            [node, str(TWIN / "runner.mjs"), "run", "--window", WINDOW, *words],
            cwd=tmp_path,
            env={**kept, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        until = time.monotonic() + WAIT_S
        while _acts(tmp_path) == seen:
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < until, "its pipeline does not begin"
            time.sleep(0.01)
        return process

    return call


def _acts(folder: Path) -> int:
    path = folder / "acts"
    return len(path.read_text("utf-8")) if path.exists() else 0


def _rows(folder: Path, statement: str) -> list[Any]:
    database = apsw.Connection(str(folder / ".kfm" / "kfm.db"))
    database.set_busy_timeout(5000)
    try:
        return list(database.execute(statement))
    finally:
        database.close()


def _pipeline(folder: Path, code: str, **source: Any) -> None:
    project(folder, pipeline="work.mjs:work", **source)
    (folder / "work.mjs").write_text(code, "utf-8")


@pytest.mark.req("TRG-1")
def test_a_machine_waits_for_the_promised_time_and_a_person_does_not(run: Run, tmp_path: Path) -> None:
    """Without a terminal a failed run is not tried before its time: exit 5; --now --rationale passes."""
    _pipeline(tmp_path, FLAKY)
    assert run("run", "--window", WINDOW).returncode == 1
    assert _rows(tmp_path, "SELECT state, blocked_by FROM requests") == [("open", "retry")]
    waits = run("run", "--window", WINDOW)
    assert waits.returncode == 5, waits.stderr
    assert waits.stdout.startswith("waiting ")
    assert "error KFM503" in waits.stderr
    assert run("run", "--window", WINDOW, "--now").returncode == 2
    assert run("run", "--window", WINDOW, "--now", "--rationale", "it is mended").returncode == 1
    assert _rows(tmp_path, "SELECT attempts FROM runs") == [(2,)]
    # Both requests wait for the same attempt.
    found = _rows(tmp_path, "SELECT state, by_person, details FROM requests ORDER BY by_person")
    assert found == [("open", 0, '{"synchronous":true}'), ("open", 1, '{"synchronous":true}')]


@pytest.mark.req("RET-6")
def test_an_act_is_not_repeated_by_a_machine_after_kill_9(run: Run, begin: Begin, tmp_path: Path) -> None:
    """A pipeline that is declared idempotent: false and was killed acts again only if a person answers."""
    _pipeline(tmp_path, ACTING.replace("CHECK", ""), idempotent=False)
    begun = begin()
    assert _rows(tmp_path, "SELECT attempt, name FROM acts") == [(1, "pipeline work.mjs:work")]
    begun.kill()
    begun.communicate()
    (tmp_path / "go").touch()
    refused = run("run", "--window", WINDOW)
    assert refused.returncode == 3, refused.stderr
    assert "error KFM314" in refused.stderr
    assert _acts(tmp_path) == 1
    assert run("run", "--window", WINDOW, "--now", "--rationale", "I have looked").returncode == 0
    assert _acts(tmp_path) == 2
    ends = _rows(tmp_path, "SELECT state, outcome FROM requests ORDER BY accepted_at_ms")
    assert ends == [("done", "failed"), ("done", "success")]


@pytest.mark.req("RET-2")
@pytest.mark.parametrize("seen_by", ["the promotion", "the function"])
def test_a_cancelled_request_is_not_published(run: Run, begin: Begin, tmp_path: Path, seen_by: str) -> None:
    """Whichever side sees the cancellation first: exit 130, one code, the next machine may start it."""
    _pipeline(tmp_path, ACTING.replace("CHECK", "check();" if seen_by == "the function" else ""))
    begun = begin(KFM_LEASE_HEARTBEAT_SECONDS="0.05" if seen_by == "the function" else "15")
    _rows(tmp_path, "UPDATE requests SET cancel = 'not wanted'")
    if seen_by == "the promotion":
        (tmp_path / "go").touch()
    said = begun.communicate(timeout=WAIT_S)[0]
    assert begun.returncode == 130, said
    assert _rows(tmp_path, "SELECT status, error_code FROM runs") == [("failed", "CANCELLED")]
    ((state, reason),) = _rows(tmp_path, "SELECT state, reason FROM requests")
    assert state == "cancelled"
    assert "not wanted" in reason
    assert not (tmp_path / "pub").exists()
    (tmp_path / "go").touch()
    assert run("run", "--window", WINDOW).returncode == 0


@pytest.mark.req("TRG-1")
def test_a_run_is_ended_by_its_limit_in_time(begin: Begin, tmp_path: Path) -> None:
    """A function that checks ends once `run_seconds` are over, and its run is retried within its budget."""
    _pipeline(tmp_path, ACTING.replace("CHECK", "check();"), run_seconds=1)
    begun = begin()
    said = begun.communicate(timeout=WAIT_S)[0]
    assert begun.returncode == 1, said
    assert "error KFM613: The run took longer than it may. Its limit is 1 s." in said
    assert _rows(tmp_path, "SELECT fate, error_class FROM retry_states") == [("retry", "timeout")]


@pytest.mark.req("UPD-7")
def test_a_plan_binds_the_attempts_of_its_run(run: Run, tmp_path: Path) -> None:
    """The request keeps the plan's digest, and what was planned is what is published."""
    project(tmp_path)
    assert run("run", "--window", WINDOW, "--dry-run", "--artifacts", "art").returncode == 0
    assert run("run", "--plan", "art/plan.jsonl").returncode == 0
    ((bound, digest),) = _rows(tmp_path, "SELECT is_bound, plan_digest FROM requests")
    assert bound == 1
    assert _rows(tmp_path, "SELECT digest FROM previews") == [(digest,)]


@pytest.mark.req("UPD-9")
def test_rights_count_as_they_are_configured_at_the_promotion(begin: Begin, tmp_path: Path) -> None:
    """A dataset that loses its rights while its run is at work is not published."""
    _pipeline(tmp_path, ACTING.replace("CHECK", ""))
    begun = begin()
    changed = json.loads((tmp_path / "kfm.yml").read_text("utf-8"))
    del changed["datasets"][0]["rights"]
    (tmp_path / "kfm.yml").write_text(json.dumps(changed), "utf-8")
    (tmp_path / "go").touch()
    said = begun.communicate(timeout=WAIT_S)[0]
    assert begun.returncode == 3, said
    assert not (tmp_path / "pub").exists()


@pytest.mark.req("TRG-1")
def test_python_does_not_spend_what_was_promised_to_an_es_module(run: Run, tmp_path: Path) -> None:
    """The promised attempt of a source that Python can't run waits for Node.js, which ends its request."""
    _pipeline(tmp_path, FLAKY.replace("throw", 'if (existsSync("down")) throw'))
    code = 'import { existsSync } from "node:fs";\n' + (tmp_path / "work.mjs").read_text("utf-8")
    (tmp_path / "work.mjs").write_text(code, "utf-8")
    (tmp_path / "down").touch()
    assert run("run", "--window", WINDOW).returncode == 1
    for table in ("requests", "retry_states"):
        _rows(tmp_path, f"UPDATE {table} SET not_before_ms = 0")
    words = [sys.executable, "-m", "kfm", "retry", "--due"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert _rows(tmp_path, "SELECT attempts FROM runs") == [(1,)]
    ((state, reason),) = _rows(tmp_path, "SELECT state, reason FROM requests")
    assert state == "open"
    assert "node node/runner.mjs run" in reason
    (tmp_path / "down").unlink()
    assert run("run", "--window", WINDOW).returncode == 0
    assert set(_rows(tmp_path, "SELECT state, outcome FROM requests")) == {("done", "success")}
