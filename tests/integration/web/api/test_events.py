"""Server-sent events: what was entered in the audit log since."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.web.api.world import World

pytestmark = pytest.mark.req("GOV-1")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "project")


def _events(text: str) -> list[tuple[str, str]]:
    blocks = [dict(line.split(": ", 1) for line in part.split("\n")) for part in text.strip().split("\n\n")]
    return [(one["id"], one["event"]) for one in blocks if "id" in one]


def test_a_listener_misses_nothing(world: World) -> None:
    """It begins at the end of the log, then gets each entry once, in order, also after it was away."""
    begin = world.ask("GET", "/events")
    assert begin.headers["content-type"].startswith("text/event-stream")
    assert begin.text.startswith("retry: ")
    ((last, kind),) = _events(begin.text)
    assert kind == "begin"
    for position in ("paused", "running"):
        world.change("/switches/all", position=position, rationale="to be heard of")
    heard = _events(world.ask("GET", "/events", headers={"Last-Event-ID": last}).text)
    assert heard == [(str(int(last) + 1), "switch"), (str(int(last) + 2), "switch")]
    assert _events(world.ask("GET", f"/events?cursor={heard[0][0]}").text) == heard[1:]
    assert _events(world.ask("GET", f"/events?cursor={heard[1][0]}").text) == []
    assert world.ask("GET", "/events", headers={"Last-Event-ID": "no number"}).status_code == 400


def test_readers_hear_no_hidden_name(world: World) -> None:
    """A masked dataset is masked in events, too."""
    world.change("/switches/dataset:burials", position="paused", rationale="the burials are found")
    text = world.ask("GET", "/events?cursor=0", "cy").text
    assert "switch" in text
    assert "burials" not in text
