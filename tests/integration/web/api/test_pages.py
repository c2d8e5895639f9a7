"""Lists to their last row, short ids, entity tags, and answers that are repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from kfm.db.quarantine import held_parameters
from kfm.db.rows import storable
from kfm.model.quarantine import QuarantineEntry
from tests.catalogue_server import serving
from tests.integration.web.api.world import TOKENS, World

ROWS = 501


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """501 entries in quarantine and 500 dead letters, many of them of one moment."""
    world = World(tmp_path_factory.mktemp("pages") / "project").past()
    app = world.opened()
    try:
        (entry,) = app.ledger.held(state="held")
        app.kernel.store.database.write(lambda session: fill(session, entry))
    finally:
        app.close()
    return world


def fill(session: Any, entry: QuarantineEntry) -> None:
    for number in range(1, ROWS):
        name = f"{number:08x}-{number:04x}-4000-8000-{number:012x}"
        held = msgspec.structs.replace(
            entry, held_id=name, subject=name, state="released", held_at_ms=entry.held_at_ms
        )
        session.all("held.put", **held_parameters(held))
        session.all(
            "dead_messages.put",
            envelope_hash=f"sha256:{number // 2:064x}",
            record_index=number % 2,
            queue="a",
            error_code="KFM900",
            error=storable("no JSON"),
            body=None,
            at_ms=1_000 + number // 7,
        )


def every(client: httpx.Client, path: str, name: str) -> list[Any]:
    """All rows of a list, page by page."""
    found: list[Any] = []
    cursor = ""
    for _ in range(100):
        sign = "&" if "?" in path else "?"
        answer = client.get(f"{path}{sign}limit=97{cursor}")
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found += page[name]
        assert page["more"] is (page["next"] is not None)
        if not page["more"]:
            return found
        cursor = f"&cursor={page['next']}"
    raise AssertionError(f"{path} does not end")


@pytest.mark.parametrize(
    ("path", "name", "key"),
    [
        ("/quarantine?all=true", "held", ("held_id",)),
        ("/quarantine?all=true&dataset=rivers", "held", ("held_id",)),
        ("/dead-letters", "dead", ("message", "record")),
        ("/dead-letters?all=true&error_code=KFM900", "dead", ("message", "record")),
    ],
)
def test_lists_are_read_to_their_last_row(world: World, path: str, name: str, key: tuple[str, ...]) -> None:
    """By the cursor of each page every row is told once, to the last, also of those of one moment."""
    with serving(world.app) as address:
        shown = {"Authorization": f"Bearer {TOKENS['ann']}"}
        with httpx.Client(base_url=f"{address}/api/v1", headers=shown, timeout=60) as client:
            found = [tuple(one[each] for each in key) for one in every(client, path, name)]
            whole = client.get(f"{path}{'&' if '?' in path else '?'}limit=1000").json()
    assert len(found) >= ROWS - 1
    assert found == [tuple(one[each] for each in key) for one in whole[name]]
    assert len(set(found)) == len(found)


def test_short_ids(world: World) -> None:
    """The beginning of an id is taken for the whole; of several that begin so, none is guessed."""
    run = world.get(f"/runs/{world.run_id[:13]}")["run"]
    assert run["run_id"] == world.run_id
    assert world.get(f"/runs/{world.run_id[:13].upper()}/attempts")["run_id"] == world.run_id
    assert world.ask("GET", f"/runs/{world.run_id[:3]}").status_code == 404
    assert world.ask("GET", "/runs/ffffffff-ff").status_code == 404
    refused = world.ask("GET", "/quarantine/0000")
    assert refused.status_code == 409
    problem = refused.json()
    assert len(problem["candidates"]) == 3
    assert all(one.startswith("0000") and one in problem["detail"] for one in problem["candidates"])


def test_a_short_id_and_the_whole_one_are_one_request(world: World) -> None:
    """Under one key a change is the same, by a short id and by the whole one."""
    incident = world.get("/incidents")["incidents"][0]["incident_id"]
    first = world.change(f"/incidents/{incident}/acknowledge", key="seen")
    again = world.change(f"/incidents/{incident[:9]}/acknowledge", key="seen")
    assert (first.status_code, first.content) == (again.status_code, again.content)
    assert first.status_code == 200


def test_what_a_client_has_is_not_sent_again(world: World) -> None:
    """An answer has a tag of its bytes; a client that has them is told so, until they change."""
    first = world.ask("GET", "/switches")
    tag = first.headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = world.ask("GET", "/switches", headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert world.ask("GET", "/switches", headers={"If-None-Match": '"other"'}).content == first.content
    assert world.ask("HEAD", "/switches").headers["etag"] == tag
    world.change("/switches/domain:hydrology", position="paused")
    changed = world.ask("GET", "/switches", headers={"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag


def test_a_repeated_request_has_the_same_answer(tmp_path: Path) -> None:
    """The answer to an accepted request is the same bytes however far it has come since; another body under
    its key is refused."""
    from kfm.service.runner import make_dispatcher

    world = World(tmp_path / "p")
    first = world.change("/requests", key="one", source="river")
    app = world.opened()
    make_dispatcher(app).step()
    app.close()
    again = world.change("/requests", key="one", source="river")
    request = world.get(first.headers["location"].removeprefix("/api/v1"))["request"]
    assert request["state"] == "done"
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again.headers["location"] == first.headers["location"]
    assert world.change("/requests", key="one", source="river", ticket="T-1").status_code == 422


def test_the_log_of_an_attempt(world: World) -> None:
    """The log is read from its beginning to its end by offsets, by level and step; a traceback names the file
    and the line."""
    path = f"/runs/{world.failed_id}/log"
    whole = world.get(f"{path}?limit=1000")
    assert (whole["attempt"], whole["more"], whole["ended"]) == (1, False, True)
    found: list[Any] = []
    cursor = ""
    for _ in range(1000):
        page = world.get(f"{path}?limit=1{cursor}")
        found += page["lines"]
        if not page["more"]:
            break
        cursor = f"&cursor={page['next']}"
    assert found == whole["lines"]
    assert world.get(f"{path}?cursor={whole['next']}")["lines"] == []
    grave = world.get(f"{path}?level=error&node=pipeline")["lines"]
    assert {(one["level"], one["phase"]) for one in grave} == {("error", "pipeline")}
    assert 'broken.py", line 2' in grave[0]["message"]
    assert world.ask("GET", f"{path}?attempt=9").status_code == 404


def test_an_incident_is_closed_once(tmp_path: Path) -> None:
    """Closed by a person with a reason, with one entry in the audit log; not again, and not by a reader."""
    world = World(tmp_path / "p").past()
    (incident,) = [one for one in world.get("/incidents")["incidents"] if one["about"] == "dataset"]
    path = f"/incidents/{incident['incident_id']}/close"
    assert world.change(path, "cy").status_code == 403
    assert world.change(path).json()["incident"]["state"] == "resolved"
    assert world.change(path).status_code == 422
    assert len(world.entries("incident-closed")) == 1


def test_nothing_to_cancel(world: World) -> None:
    """A run that has ended is not cancelled."""
    assert world.change(f"/runs/{world.run_id}/cancel").status_code == 409
    assert world.change(f"/runs/{world.run_id}/cancel", "cy").status_code == 403
