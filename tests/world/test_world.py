"""The world that is looked at has in it what it is looked at for."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

from kfm.cli import main
from tests.world.keeping import copied_world, looking_at


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied_world(tmp_path_factory.mktemp("world") / "world")


def document(world: Path, *words: str) -> Any:
    out = io.StringIO()
    with looking_at(world), contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main([*words, "--json"])
    return json.loads(out.getvalue())


def test_it_is_in_the_trouble_that_is_looked_for(world: Path) -> None:
    """Sixty days have left something of each kind, and nothing in between was made by hand."""
    status = document(world, "status")
    health = {one["dataset_id"]: one["health"]["state"] for one in status["datasets"]}
    assert len(health) == 13
    assert health["ks-wells"] == health["ks-drought"] == health["ks-air-quality"] == "failing"
    assert health["ks-streamflow"] == health["ks-rainfall"] == "incomplete"
    assert health["ks-roads"] == "paused"
    assert health["ks-counties"] == health["ks-water-summary"] == "fresh"
    assert [one["provider"] for one in status["breakers"]] == ["airnow"]
    assert [one["dataset_id"] for one in status["running"]] == ["ks-crop-condition"]
    assert [one["holder"] is not None for one in status["running"]] == [True]
    assert len(document(world, "approvals", "list")["requests"]) == 2
    units = {one["dataset"]: (one["failed"], one["quarantined"]) for one in status["units"]["datasets"]}
    assert units == {"hrrr": (57, 0), "mrms": (0, 36), "nexrad-l2": (0, 32)}
