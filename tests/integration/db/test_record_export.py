"""The ledger leaves the house in three forms, and comes back the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict

from kfm.model.errors import UsageError
from kfm.model.records import Run, Trigger, Window, Work
from kfm.model.runs import started
from kfm.pipelines.record_export import export_runs


def runs() -> list[Run]:
    trigger = Trigger(type="manual", source_id="s", dataset_id="d")
    found = []
    for day in range(3):
        window = Window(start_ms=day * 86_400_000, end_ms=(day + 1) * 86_400_000, spec="P1D")
        work = Work(source_id="s", window=window, partition=None if day else "é🌽", output_version="1")
        found.append(started(trigger, work, environment="t", revision=0, pipeline_id="p", fence=1, now_ms=5))
    return found


def read_back(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    from arro3.core import Table
    from arro3.io import read_ipc, read_parquet

    table = Table((read_ipc if path.suffix == ".feather" else read_parquet)(path))
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


@pytest.mark.req("UPD-4")
@pytest.mark.parametrize("name", ["runs.jsonl", "runs.parquet", "runs.feather"])
def test_every_form_holds_every_field(tmp_path: Path, name: str) -> None:
    """JSON Lines, Parquet and Feather hold the same rows, nulls and all."""
    path = tmp_path / name
    export_runs(runs(), str(path))
    found = [
        {key: value for key, value in row.items() if not key.endswith("_utc")} for row in read_back(path)
    ]
    assert found == [asdict(run) for run in runs()]
    export_runs([], str(path))
    assert read_back(path) == []
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


@pytest.mark.req("CLI-2")
@pytest.mark.parametrize("name", ["runs.xlsx", "runs", "no/such/folder/runs.jsonl"])
def test_a_form_or_place_that_is_not_there(tmp_path: Path, name: str) -> None:
    """A wrong name is said, and nothing is left."""
    with pytest.raises(UsageError):
        export_runs(runs(), str(tmp_path / name))
    assert not list(tmp_path.iterdir())
