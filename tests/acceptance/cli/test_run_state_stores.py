"""`kfm run-state migrate` and the Delta mirror, as people call them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")

FLOW = """
import kfm

pipeline = kfm.Pipeline("soil")


@pipeline.node("samples")
def samples() -> list[int]:
    return [1, 2, 3]


@pipeline.node("mean")
def mean(samples: list[int]) -> float:
    return sum(samples) / len(samples)
"""


@pytest.fixture
def flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flow.py").write_text(FLOW)
    (tmp_path / "kfm.yml").write_text("version: 1\n")
    return tmp_path


@pytest.mark.req("RS-5")
def test_migrate(kfm: Any, flow: Path, valid: Any) -> None:
    """Records move, the environment switches, and a forgotten configuration is told with what to write."""
    assert kfm("pipeline", "run", "flow.py").code == 0
    moved = kfm("run-state", "migrate", "--to", "delta", "--json")
    valid("run-state-migrate", moved.document)
    assert (moved.document["before"], moved.document["after"]) == ("relational", "delta")
    assert moved.document["records"] == 2
    assert "run_state: {store: delta}" in moved.err

    forgotten = kfm("pipeline", "run", "flow.py")
    assert forgotten.code == 2
    assert "kept in `delta`" in forgotten.err
    (flow / "kfm.yml").write_text("version: 1\nrun_state: {store: delta}\n")
    assert "2 unchanged" in kfm("pipeline", "run", "flow.py").out
    assert len(kfm("run-state", "history", "mean", "--json").document["records"]) == 2

    again = kfm("run-state", "migrate")
    assert (again.code, "already" in again.err) == (2, True)
    (flow / "kfm.yml").write_text("version: 1\nrun_state: {store: branch}\n")
    onwards = kfm("run-state", "migrate")
    assert onwards.out == "branch: 4 records, as in delta\n"
    assert "2 unchanged" in kfm("pipeline", "run", "flow.py").out
    assert kfm("run-state", "migrate", "--to", "branch", "--path", "x").code == 2


@pytest.mark.req("RS-5")
def test_mirror(kfm: Any, flow: Path, valid: Any) -> None:
    """An export that ends in .delta is a table with every record."""
    import deltalake

    kfm("pipeline", "run", "flow.py")
    done = kfm("run-state", "export", "records.delta", "--json")
    valid("run-state-export", done.document)
    assert done.document["records"] == 2
    assert deltalake.DeltaTable(str(flow / "records.delta")).count() == 2
    assert kfm("run-state", "export", "records.delta", "--branch", "main").code == 2
