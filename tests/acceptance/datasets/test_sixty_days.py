"""Sixty days of a dataset whose upstream is late, empty, wrong, withdrawn, and of a service that is away."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.datasets.sixty_days import Script, StoryClock, World, upstream


@pytest.fixture(params=[1, 2, 3])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    script, clock = Script(request.param), StoryClock()
    clock.install(monkeypatch)
    with upstream(script, clock) as url:
        made = World(tmp_path / "project")
        made.folder.mkdir()
        made.prepare(script, clock, url)
        made.play()
    return made


def states(world: World, dataset: str) -> dict[str, str]:
    shown = world.kfm("coverage", dataset, "--json").document
    return {one["window_start"][:10]: one["state"] for one in shown["windows"]}


def test_sixty_days(world: World) -> None:
    assert states(world, "levels") == world.script.levels_at_the_end
    assert states(world, "notes") == world.script.notes_at_the_end
