"""What became of a run is told by the process that ended it, and by no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kfm.app import App
from kfm.config.loader import load
from kfm.model.runs import PromoteResult
from kfm.runs.kernel import RunRequest
from tests.recording import Recording

pytestmark = pytest.mark.req("UPD-15")

CONFIG = """\
version: 1
environment: test
datasets: [{id: levels, rights: {license: CC0-1.0, care: {label: Public}}}]
sources: [{id: daily, dataset: levels, kind: files, folder: incoming}]
"""


def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **answers: Any) -> list[dict[str, str]]:
    """The labels under which a run was counted whose store gives these answers."""
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "a.csv").write_text("station,level\na,1\n")
    (tmp_path / "kfm.yml").write_text(CONFIG)
    app = App(load(str(tmp_path / "kfm.yml")), read_only=False, progress=None)
    recording = Recording()
    app.__dict__["kernel"] = replace(app.kernel, telemetry=recording)
    for name, answer in answers.items():
        monkeypatch.setattr(app.store, name, lambda _request, answer=answer: answer)
    try:
        app.run(RunRequest(source_id="daily", window_spec="2026-01-01/P1D", actor="ada"))
    finally:
        app.close()
    return [dict(labels) for name, labels in recording.amounts if name == "kfm.updater.runs_total"]


def test_a_run_that_ends_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A promoted run counts once, as complete."""
    assert [labels["outcome"] for labels in ended(tmp_path, monkeypatch)] == ["complete"]


def test_a_run_that_was_lost_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that lost its lease at the promotion says nothing of how the run ended."""
    assert ended(tmp_path, monkeypatch, promote=PromoteResult(answer="lost")) == []


def test_a_failure_that_did_not_land_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does one whose failure came too late."""
    assert ended(tmp_path, monkeypatch, promote=None, fail=False) == []
