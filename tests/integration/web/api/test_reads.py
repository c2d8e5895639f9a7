"""What can be asked over HTTP is what the commands print, and nothing that the caller may not see."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from kfm.config.loader import load
from kfm.model.redaction import PREFIX
from kfm.model.times import rfc3339
from kfm.runs.kernel import RunRequest
from kfm.web.api.components import component_ref
from kfm.web.api.operation_table import OPERATIONS
from kfm.web.api.routes import api_app
from kfm.web.openapi import api_openapi
from kfm.web.request_context import WebContext
from tests.integration.web.api.world import SECRET, World


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("reading") / "project").past()


def printed(world: World, capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """What a command prints as JSON."""
    from kfm.cli import main

    with pytest.raises(SystemExit):
        main([*arguments, "--json", "-c", str(world.folder / "kfm.yml")])
    return msgspec.json.decode(capsys.readouterr().out)


def timeless(document: Any) -> str:
    """Without spans of time: it goes on between two questions."""
    return re.sub(r"[\d.]+ (?:ms|s|min|h)\b", "some time", msgspec.json.encode(document).decode())


@pytest.mark.req("RS-12")
def test_the_same_explanation_as_the_command_gives(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """`explain` over HTTP is, word for word, what `kfm explain --json` prints."""
    for what in (
        world.run_id,
        world.failed_id,
        f"{world.failed_id}/fetch",
        f"{world.failed_id}%231/fetch",
        "rivers",
        "river",
        "KFM204",
        "kfm101",
    ):
        told = printed(world, capsys, "explain", what.replace("%23", "#"))
        assert timeless(world.get(f"/explain/{what}")) == timeless(told)
        assert told["kind"] in ("run", "node", "attempt", "dataset", "source", "error", "rule")


@pytest.mark.req("RS-12")
def test_no_account_of_what_is_not_there(world: World) -> None:
    """Nothing is invented: what is not on record is not explained."""
    for what in ("KFM999", "unknown", "0000000000000-00000000000000000000", f"{world.run_id}/nothing"):
        assert world.ask("GET", f"/explain/{what}").status_code == 404, what


def test_the_same_documents_as_the_commands_print(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """A client of the API and one of the command line read the same."""
    assert world.get(f"/runs/{world.run_id}") == printed(world, capsys, "show", world.run_id)
    assert world.get("/breakers") == printed(world, capsys, "breaker", "list")
    for path, command in (
        ("/quarantine", ("quarantine", "list")),
        ("/incidents", ("incident", "list")),
        ("/units", ("nodd", "units")),
        ("/dead-letters", ("nodd", "dead", "list")),
    ):
        assert world.get(path) == {**printed(world, capsys, *command), "next": None}
    assert world.get("/switches") == printed(world, capsys, "switch", "list")
    assert world.get(f"/runs/{world.run_id}/lineage") == printed(
        world, capsys, "lineage", "show", world.run_id
    )
    status, told = world.get("/status"), printed(world, capsys, "status")
    for each in (*status["datasets"], *told["datasets"]):
        each["health"]["lag_ms"] = 0  # it grows while they are compared
    assert {**status, "at": ""} == {**told, "at": ""}
    runs = world.get("/runs")
    assert {"runs": runs["runs"], "more": runs["more"]} == printed(world, capsys, "runs")
    audit = world.get("/audit")
    assert audit["entries"] == printed(world, capsys, "audit", "list")["entries"]


def test_every_answer_has_its_shape(world: World) -> None:
    """Each document that can be asked for keeps to the schema that the description has for it."""
    described = api_openapi()
    held, incident = world.get("/quarantine")["held"][0], world.get("/incidents")["incidents"][0]
    request = world.change("/requests", source="river").json()["request"]
    release = world.change(f"/quarantine/{held['held_id']}/release").json()["request"]
    known = {
        "run_id": world.failed_id,
        "held_id": held["held_id"],
        "incident_id": incident["incident_id"],
        "schedule_id": "river-daily",
        "dataset_id": "rivers",
        "version": "1",
        "what": world.failed_id,
    }
    elsewhere = (
        "feed",
        "feed-failures",
        "plan-of-windows",
        "replay",
        "cli-nodd-dead-show",
        "preview",
        "cli-nodd-show",
        "item",
        "change",
        "dataset-change",
        "events",
    )  # tested elsewhere
    said = {
        "missing": "?dataset=rivers",
        "cli-replay-dry-run": "?datasets=mrms",
        "replay-selection": "?datasets=mrms",
    }
    for operation in OPERATIONS:
        if operation.method != "GET" or operation.answer in elsewhere or "change_id" in operation.fields:
            continue
        names = {**known, "request_id": release["request_id"]}
        if operation.path.startswith("/requests"):
            names["request_id"] = request["request_id"]
        document = world.get(operation.shown_path.format(**names) + said.get(operation.answer, ""))
        schema = {**described, **component_ref(operation.answer)}
        jsonschema_rs.validator_for(schema, validate_formats=True).validate(document)


def test_pages_of_runs(tmp_path: Path) -> None:
    """Page by page, by the cursor of each, every run is told once, also of those that began together."""
    world = World(tmp_path / "p")
    app = world.opened()
    for day in range(1, 8):
        app.run(RunRequest(source_id="river", actor="ann", window_spec=f"2026-01-0{day}/P1D"))
    app.close()
    whole = world.get("/runs?limit=1000")["runs"]
    found: list[Any] = []
    cursor = ""
    for _ in range(10):
        page = world.get(f"/runs?limit=2&source=river{cursor}")
        found += page["runs"]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert found == whole
    assert len(found) == 7
    assert world.get("/runs?dataset=rivers&status=success&limit=3")["more"] is True
    assert world.get("/runs?status=failed")["runs"] == []
    later = rfc3339(world.context.now_ms() + 60_000)
    assert world.get(f"/runs?since={later}")["runs"] == []


def test_pages_of_the_governance_ledger(tmp_path: Path) -> None:
    """Page by page the ledger is told from its end to its beginning; a filter leaves nothing out."""
    world = World(tmp_path / "p")
    for number in range(5):
        world.change("/switches/all", position="running", rationale=f"number {number}")
        world.change("/switches/domain:hydrology", position="paused", rationale=f"number {number}")
    found: list[Any] = []
    cursor = ""
    for _ in range(10):
        page = world.get(f"/audit?limit=3{cursor}")
        found += page["entries"]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert [one["number"] for one in found] == list(range(10, 0, -1))
    about = world.get("/audit?kind=switch&subject=all&limit=4")
    assert [one["rationale"] for one in about["entries"]] == [f"number {n}" for n in (4, 3, 2, 1)]
    rest = world.get(f"/audit?kind=switch&subject=all&cursor={about['next']}")
    assert [one["rationale"] for one in rest["entries"]] == ["number 0"]


def test_a_long_ledger_is_told_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One request looks at so many rows and no more; what is behind them is on a later page."""
    world = World(tmp_path / "p")
    monkeypatch.setattr("kfm.reports.audit.ROWS_SEEN_MAX", 4)
    monkeypatch.setattr("kfm.reports.audit.PAGE_ROWS", 3)
    world.change("/switches/domain:hydrology", position="paused", rationale="the one")
    assert world.change("/switches/all", "bob", position="paused").status_code == 403
    for _ in range(6):
        world.change("/switches/all", position="running")
    page = world.get("/audit?actor=bob")
    assert (page["entries"], page["more"]) == ([], True)
    page = world.get(f"/audit?actor=bob&cursor={page['next']}")
    assert [one["kind"] for one in page["entries"]] == ["role-refused"]
    about = world.get("/audit?subject=domain:hydrology")  # by an index, whatever lies before it
    assert [one["rationale"] for one in about["entries"]] == ["the one"]


def test_entries_of_a_person_and_of_a_time(tmp_path: Path) -> None:
    """Each filter alone and together; the times that are not asked for are not looked at."""
    world = World(tmp_path / "p")
    for who in ("ann", "bob", "ann"):
        world.change("/switches/all", who, position="running", rationale=f"by {who}")
    entries = world.get("/audit")["entries"]
    assert [one["actor"] for one in world.get("/audit?actor=ann&kind=switch")["entries"]] == ["ann", "ann"]
    last = entries[0]["recorded_at"]
    assert entries[0] in world.get(f"/audit?since={last}")["entries"]
    assert world.get(f"/audit?until={entries[-1]['recorded_at']}")["entries"] == []
    assert world.get("/audit?since=2100-01-01T00:00:00Z") == {"entries": [], "more": False, "next": None}
    assert world.ask("GET", "/audit?since=noon").status_code == 400


def test_a_mask_is_not_found_by_its_actor(tmp_path: Path) -> None:
    """A reader sees that an entry about a masked dataset is there, not whose it is: no filter tells it."""
    world = World(tmp_path / "p")
    world.change("/switches/dataset:burials", position="paused")
    assert [one["actor"] for one in world.get("/audit", "cy")["entries"]] == ["withheld"]
    assert world.get("/audit?actor=ann", "cy")["entries"] == []
    assert len(world.get("/audit?actor=ann")["entries"]) == 1


# --- what is not told ------------------------------------------------------------------


@pytest.mark.req("RS-13", "GOV-3")
def test_hidden_datasets_have_masks_for_readers(tmp_path: Path) -> None:
    """A person who may only read learns no name of a restricted dataset or of its source, nor by guessing."""
    world = World(tmp_path / "p").past()
    app = world.opened()
    app.run(RunRequest(source_id="mound", actor="ann"))  # refused: it needs an approval
    app.close()
    world.change("/switches/dataset:burials", position="paused", rationale="the mound and burials wait")
    asked = world.change("/requests", source="mound").json()["request"]
    paths = ["/status", "/audit", "/switches", "/requests", "/runs", "/approvals", "/schedules"]
    for path in (*paths, f"/requests/{asked['request_id']}"):
        assert "burials" not in world.ask("GET", path, "cy").text, path
        assert "mound" not in world.ask("GET", path, "cy").text, path
    assert "burials" in world.ask("GET", "/status", "ann").text
    mask = world.get(f"/requests/{asked['request_id']}", "cy")["request"]["dataset_id"]
    assert mask.startswith(PREFIX)
    for guess in ("burials", "mound"):
        assert world.get(f"/requests?source={guess}", "cy")["requests"] == []
        assert world.ask("GET", f"/explain/{guess}", "cy").status_code == 404
    assert len(world.get("/requests?source=mound", "ann")["requests"]) == 1


def test_secrets_are_in_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the environment keeps secret is masked in whatever is told, also in reasons that people give."""
    monkeypatch.setenv("KFM_TEST_PASSWORD", SECRET)
    world = World(tmp_path / "p").past()
    given = world.change("/switches/all", position="running", rationale=f"it was {SECRET}, sorry")
    assert given.status_code == 200
    paths = ["/audit", "/switches", "/quarantine", "/incidents", f"/explain/{world.failed_id}"]
    for path in [*paths, f"/runs/{world.failed_id}", f"/runs/{world.failed_id}/attempts", "/status"]:
        assert SECRET not in world.ask("GET", path).text, path
    assert SECRET not in given.text
    del os.environ["KFM_TEST_PASSWORD"]
    with world.context.reader() as ledger:
        assert SECRET not in str(ledger.governance(kind="switch"))


def test_nothing_yet(tmp_path: Path) -> None:
    """A project in which nothing has happened answers every list with an empty one."""
    world = World(tmp_path / "p")
    assert world.get("/runs") == {"runs": [], "more": False, "next": None}
    assert world.get("/audit") == {"entries": [], "more": False, "next": None}
    assert world.get("/requests")["requests"] == []
    assert world.get("/status")["headline"]["state"] == "empty"
    assert [one["schedule_id"] for one in world.get("/schedules")["schedules"]] == ["river-daily"]


def test_previews_that_were_kept(tmp_path: Path) -> None:
    """What a request was about to change can be read as it was kept, by its request and by its run."""
    from kfm.service.runner import make_dispatcher
    from tests.integration.service.project import asked

    world = World(tmp_path / "p")
    app = world.opened()
    request = asked("one")
    app.kernel.store.requests().accept([request])
    make_dispatcher(app).step()
    app.close()
    done = world.get(f"/requests/{request.request_id}")["request"]
    assert (done["state"], done["outcome"]) == ("done", "success")
    preview = world.get(f"/requests/{request.request_id}/preview", "cy")
    assert preview == world.get(f"/runs/{done['run_id']}/preview", "cy")
    assert preview["plan"]["digest"] == done["plan_digest"]
    assert preview["plan"]["tally"]["added"] == 1


FEEDS = """\
ingest:
  feeds:
    - {dataset: goes-abi, products: [ABI-L2-MCMIPC], platforms: [GOES-19], from: '2026-01-01'}
    - {dataset: burials, products: [bones], platforms: [mound-nine], per_hour: 1, from: '2026-01-01'}
"""


@pytest.mark.req("DAT-1")
def test_a_feed_is_public_and_a_masked_dataset_stays_masked(tmp_path: Path) -> None:
    """What is announced publicly is shown to readers by its name; a feed named as a restricted dataset is
    not, nor are its products."""
    world = World(tmp_path / "project")
    config = world.folder / "kfm.yml"
    config.write_text(config.read_text() + FEEDS)
    world = Reopened(world.folder)
    world.opened().close()
    listed = world.get("/datasets", "cy")["datasets"]
    assert "goes-abi" in [one["dataset_id"] for one in listed]
    shown = world.get("/datasets/goes-abi/coverage?limit=2", "cy")
    assert shown["windows"][0]["source_id"] == "goes-abi ABI-L2-MCMIPC GOES-19"
    assert shown["products"][0]["platform"] == "GOES-19"
    assert "ABI-L2-MCMIPC" in next(iter(shown["objectives"]))
    masked = next(one["dataset_id"] for one in listed if one["dataset_id"] not in ("goes-abi", "rivers"))
    assert world.ask("GET", "/datasets/burials/coverage", "cy").status_code == 404
    hidden = world.ask("GET", f"/datasets/{masked}/coverage?limit=2", "cy")
    assert hidden.status_code == 200
    for word in ("burials", "bones", "mound-nine"):
        assert word not in hidden.text
    assert "bones" in world.ask("GET", "/datasets/burials/coverage?limit=2", "ann").text


class Reopened(World):
    """The project of a folder as it is now."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.loaded = load(str(folder / "kfm.yml"))
        self.context = WebContext(self.loaded)
        self.app = api_app(self.context)
