"""`kfm --server`: replays and missing windows, planned on a laptop and carried out by a real service."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.runs.conftest import Ended, Inside
from tests.acceptance.service.served import Served, serving
from tests.integration.web.plans_world import TOKENS, PlansWorld

SECONDS_MAX = 60.0
WHY = ("--rationale", "the bucket is back")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> PlansWorld:
    return PlansWorld(tmp_path_factory.mktemp("remote-plans") / "project")


@pytest.fixture(scope="module")
def units(world: PlansWorld) -> list[str]:
    return world.given_up(1, 2, 3)


@pytest.fixture(scope="module")
def served(world: PlansWorld, units: list[str]) -> Iterator[Served]:
    with serving(world.folder, "--no-worker") as running:
        yield running


class Laptop:
    """A folder without a project."""

    def __init__(self, folder: Path, served: Served) -> None:
        folder.mkdir()
        self._inside, self._url = Inside(folder), served.url
        self._inside.env["KFM_TOKEN"] = TOKENS["ann"]

    def kfm(self, *arguments: str) -> Ended:
        return self._inside.kfm("--server", self._url, *arguments)

    def document(self, *arguments: str) -> Any:
        ended = self.kfm(*arguments, "--json")
        assert ended.code == 0, ended.err
        return json.loads(ended.out)


@pytest.fixture
def laptop(tmp_path: Path, served: Served) -> Laptop:
    return Laptop(tmp_path / "laptop", served)


@pytest.mark.req("WAL-13")
def test_a_replay_is_planned_kept_and_carried_out_by_the_service(laptop: Laptop, units: list[str]) -> None:
    """The list that is shown is the one that is kept, and each of its units has a receipt."""
    chosen = ("--dataset", "mrms", "--error-code", "HTTP_503")
    selected = laptop.document("replay", "select", *chosen)
    assert [one["left_out"] for one in selected["units"]] == [None] * 3
    shown = laptop.document("replay", "dry-run", *chosen)
    assert [one["wal_id"] for one in shown["units"]] == units
    assert shown["bytes"] == {"units": 3, "size": 30}
    kept = laptop.document("replay", "plan", *chosen, "--name", "storm", *WHY)["replay"]
    assert (kept["digest"], kept["stage"], kept["name"]) == (shown["digest"], "planned", "storm")
    assert "--confirm" in laptop.kfm("replay", "run", kept["replay_id"], *WHY).err
    begun = laptop.document("replay", "run", kept["replay_id"][:13], "--rate", "500", "--confirm", *WHY)
    assert begun["replay"]["rate"] == 500
    ends = time.monotonic() + SECONDS_MAX
    while (found := laptop.document("replay", "inspect", kept["replay_id"]))["replay"]["state"] != "done":
        assert time.monotonic() < ends, found
    assert [(one["wal_id"], one["receipt"]) for one in found["receipts"]] == [
        (name, "replayed") for name in units
    ]
    assert laptop.kfm("replay", "stop", kept["replay_id"], *WHY).code == 2
    assert [one["name"] for one in laptop.document("replay", "inspect")["replays"]] == ["storm"]


def test_missing_windows_are_asked_for_by_their_list(laptop: Laptop, world: PlansWorld) -> None:
    """Named windows by the digest of their list; another list is refused, and nothing is asked for."""
    cells = [word for day in (0, 1) for word in ("--cell", world.cell(day))]
    shown = laptop.document("run", "--missing", *cells, "--dry-run")
    assert [one["window_start"][:10] for one in shown["windows"]] == [world.day(0), world.day(1)]
    other = laptop.kfm("run", "--missing", *cells[:2], "--digest", shown["digest"], *WHY)
    assert other.code == 3
    assert "The list was" in other.err
    asked = laptop.document("run", "--missing", *cells, "--digest", shown["digest"], *WHY)
    assert asked["asked_for"] == 2
    assert all(one["request_id"] for one in asked["windows"])
    assert laptop.kfm("run", "--missing", "nothing", "--yes", *WHY).code == 2
