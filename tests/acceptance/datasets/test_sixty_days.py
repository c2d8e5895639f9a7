"""Sixty days of datasets whose upstream is late, empty, wrong and withdrawn, with a service that is away."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from kfm.config.loader import load
from kfm.model.completeness import SETTLED
from kfm.web.api.routes import api_app
from kfm.web.request_context import WebContext
from tests.acceptance.datasets.sixty_days import Script, StoryClock, World, upstream

DATASETS = ("levels", "notes")


@pytest.mark.req("DAT-1", "DAT-2", "DAT-3", "DAT-4", "DAT-5", "DAT-10")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_sixty_days(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each window ends as its script says, none without data is silent at any moment, each change of an
    incident is told once, and commands, API and metrics have one verdict."""
    script, clock = Script(seed), StoryClock()
    clock.install(monkeypatch)
    world = World(tmp_path / "project")
    world.folder.mkdir()
    with upstream(script, clock) as url:
        world.prepare(script, clock, url)
        world.play()
    every_window_ended_as_written(world)
    no_hole_is_silent(world)
    each_change_was_told_once(world)
    the_verdict_is_one(world)
    readers_see_what_is_true(world)
    assert world.kfm("audit", "verify").code == 0


def states(world: World, dataset_id: str) -> dict[str, str]:
    shown = world.kfm("coverage", dataset_id, "--json").document
    return {one["window_start"][:10]: one["state"] for one in shown["windows"]}


def every_window_ended_as_written(world: World) -> None:
    assert states(world, "levels") == world.script.levels_at_the_end
    assert states(world, "notes") == world.script.notes_at_the_end
    health = {one: world.kfm("coverage", one, "--json").document["health"]["state"] for one in DATASETS}
    assert health["levels"] == "failing"  # a window is quarantined


def no_hole_is_silent(world: World) -> None:
    """What is not settled waits for its time, or an open incident is about it; and only of such."""
    told = world.told_of()
    for dataset_id in DATASETS:
        for one in world.kfm("coverage", dataset_id, "--json").document["windows"]:
            kinds = told.get((one["source_id"], world.start_ms(one["window_start"])), set())
            if one["state"] in SETTLED or one["state"] == "waiting":
                assert not kinds & {"overdue", "quarantine"}, one
            else:
                assert kinds == {"quarantine" if one["state"] == "quarantined" else "overdue"}, one


def each_change_was_told_once(world: World) -> None:
    """The hook has each change that is on record, once, in order; an incident opens when the first window is
    overdue, and ends with the last."""
    posted = world.rows("SELECT event_id, subject, delivered_at_ms FROM outbox WHERE topic = 'incident'")
    told = world.told()
    assert Counter(one["id"] for one in told) == Counter(event_id for event_id, _, _ in posted)
    assert all(delivered_ms is not None for _, _, delivered_ms in posted)
    causes = {event_id: cause for event_id, cause, _ in posted}
    changes: dict[str, list[str]] = {}
    for one in told:
        changes.setdefault(causes[one["id"]], []).append(one["data"]["change"])
    known = {
        cause: (name, kind, state)
        for cause, name, kind, state in world.rows("SELECT cause, name, kind, state FROM incidents")
    }
    assert set(changes) == set(known)
    for cause, (name, kind, state) in known.items():
        heard = [change for change in changes[cause] if change != "worse"]
        assert heard == ["open", "resolved"] * (len(heard) // 2) + ["open"] * (len(heard) % 2)
        assert (heard[-1] == "open") == (state == "open"), cause
        if kind == "overdue":
            assert heard == world.overdue_changes[name], name
    assert Counter(kind for _, kind, _ in known.values()) == {"overdue": 2, "quarantine": 1, "withdrawn": 1}


def the_verdict_is_one(world: World) -> None:
    """Of `kfm coverage`, `kfm status`, the API and metrics."""
    with world._surroundings():
        client = TestClient(
            api_app(WebContext(load(None, {}))), base_url="http://127.0.0.1", client=("127.0.0.1", 5000)
        )
        listed = {one["dataset_id"]: one for one in client.get("/api/v1/datasets").json()["datasets"]}
        shown = {one: client.get(f"/api/v1/datasets/{one}/coverage?limit=500").json() for one in DATASETS}
    status = {one["dataset_id"]: one for one in world.kfm("status", "--json").document["datasets"]}
    series = _series(world)
    for dataset_id in DATASETS:
        document = world.kfm("coverage", dataset_id, "--json").document
        told = document["health"]
        others = (status[dataset_id]["health"], listed[dataset_id]["health"], shown[dataset_id]["health"])
        for other in others:
            assert {**other, "lag_ms": 0} == {**told, "lag_ms": 0}
        assert shown[dataset_id]["windows"] == document["windows"]
        counts = {state: value for (name, of, state), value in series.items()
                  if (name, of) == ("kfm.dataset.windows", dataset_id) and value}  # fmt: skip
        assert counts == told["windows"] == Counter(one["state"] for one in document["windows"])
        healths = [state for (name, of, state), value in series.items()
                   if (name, of) == ("kfm.dataset.health", dataset_id) and value]  # fmt: skip
        assert healths == [told["state"]]


def _series(world: World) -> dict[tuple[str, str, str], Any]:
    return {
        (metric["name"], one["labels"]["dataset"], one["labels"].get("state") or one["labels"].get("health")):
        one["value"]
        for metric in world.kfm("metrics", "--json").document["metrics"]
        if metric["name"] in ("kfm.dataset.windows", "kfm.dataset.health")
        for one in metric["series"]
    }  # fmt: skip


def readers_see_what_is_true(world: World) -> None:
    """The days that are published, with the rows that upstream has now; the withdrawn one is a tombstone."""
    current = world.published / "levels" / "current"
    expected = {
        day: world.script.body(day, world.clock.now_ms())
        for day, state in world.script.levels_at_the_end.items()
        if state == "published"
    }
    found = {path.parent.name: path.read_bytes() for path in current.glob("data/*/*.json")}
    assert found == expected
    assert (current / "withdrawn.json").exists()
