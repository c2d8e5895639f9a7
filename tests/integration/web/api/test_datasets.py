"""The life of a dataset over HTTP: versions, previews with digests, changes, and tombstones as 410."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import jsonschema_rs
import pytest

from kfm.runs.kernel import RunRequest
from kfm.web.api.components import component_ref
from kfm.web.openapi import api_openapi
from tests.integration.web.api.test_reads import printed
from tests.integration.web.api.world import World

pytestmark = pytest.mark.req("DAT-4", "DAT-5")
DAYS = ("2026-01-01", "2026-01-02", "2026-01-03")
TARGET = "publish:\n  - {kind: local, path: published}\n"
PATH = "/datasets/rivers"
SECOND = "2026-01-02/P1D"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Three days in three versions, which a folder shows."""
    made = World(tmp_path / "project")
    configure(made, TARGET)
    app = made.opened()
    for day in DAYS:
        (made.folder / "incoming" / "a.csv").write_text(f"day,flow\n{day},2\n")
        assert app.run(RunRequest(source_id="river", actor="ann", window_spec=f"{day}/P1D")).run is not None
    app.close()
    return made


def configure(world: World, more: str) -> None:
    from kfm.config.loader import load
    from kfm.web.api.routes import api_app
    from kfm.web.request_context import WebContext

    path = world.folder / "kfm.yml"
    path.write_text(path.read_text() + more)
    world.loaded = load(str(path))
    world.context = WebContext(world.loaded)
    world.app = api_app(world.context)


def valid(name: str, document: Any) -> None:
    schema = {**api_openapi(), **component_ref(name)}
    jsonschema_rs.validator_for(schema, validate_formats=True).validate(document)


def shown(world: World) -> int:
    """How many files readers see."""
    return len(list((world.folder / "published/rivers/current/data").rglob("*.csv")))


def made(world: World, verb: str, query: str = "", **body: Any) -> httpx.Response:
    """What was previewed, and nothing else."""
    preview = world.get(f"{PATH}/{verb}{query}")
    valid("change", preview)
    assert (preview["applied"], preview["receipt"]) == (False, None)
    return world.change(f"{PATH}/{verb}", digest=preview["plan"]["digest"], **body)


def test_versions_page_by_page(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Every version is told once, the newest first, as `kfm dataset show` tells it."""
    found: list[Any] = []
    cursor = ""
    for _ in range(4):
        page = world.get(f"{PATH}/versions?limit=2{cursor}")
        valid("versions", page)
        found += page["versions"]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert [one["version"] for one in found] == [3, 2, 1]
    assert found == printed(world, capsys, "dataset", "show", "rivers")["dataset"]["versions"]
    one = world.get(f"{PATH}/versions/2")
    valid("version", one)
    assert (one["version"], len(one["items"]), one["more"]) == (found[1], 2, False)
    item = world.get(f"{PATH}/items/{one['items'][0]['item_id']}")
    valid("item", item)
    assert (item["version"], item["item"]) == (3, one["items"][0])
    summary = world.get(PATH)
    valid("dataset", summary)
    assert (summary["state"], summary["head"]) == ("published", found[0])
    for path in ("versions/9", "versions/x", "versions/0", "items/none"):
        assert world.ask("GET", f"{PATH}/{path}").status_code == 404, path
    assert world.ask("GET", "/datasets/unknown").status_code == 404
    assert world.ask("GET", "/datasets/unknown/versions").status_code == 404


def test_the_same_plan_as_the_command_makes(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """A digest that one of them has shown is good for the other: there is one plan."""
    for path, words in (
        ("rollback?to_version=1", ("rollback", "rivers", "--to", "1")),
        (
            f"withdrawal?window={SECOND}&source=river",
            ("withdraw", "rivers", "--window", SECOND, "--source", "river"),
        ),
        ("withdrawal?purge=true", ("withdraw", "rivers", "--purge")),
        ("retirement", ("dataset", "retire", "rivers")),
    ):
        assert world.get(f"{PATH}/{path}")["plan"] == printed(world, capsys, *words)["plan"], path
    assert world.entries("promotion")[0]["subject"] != "rivers"
    assert world.get("/dataset-changes")["changes"] == []


def test_a_rollback_is_applied_once(world: World) -> None:
    """With the digest of its preview, a reason and an entry; the same key changes nothing more."""
    plan = world.get(f"{PATH}/rollback?to_version=2")["plan"]
    body = {"digest": plan["digest"], "to_version": 2, "ticket": "T-1", "rationale": "the unit is wrong"}
    first = world.change(f"{PATH}/rollback", key="k", **body)
    valid("change", first.json())
    assert (first.status_code, shown(world)) == (200, 2), first.text
    assert first.json()["receipt"]["change"]["actor"] == "ann"
    again = world.change(f"{PATH}/rollback", key="k", **body)
    assert (again.status_code, again.json()) == (200, first.json())
    late = world.change(f"{PATH}/rollback", **body)
    assert (late.status_code, late.json()["code"]) == (409, "KFM306")
    (entry,) = (one for one in world.entries("promotion") if one["details"].get("change"))
    assert (entry["actor"], entry["rationale"], entry["ticket"]) == ("ann", "the unit is wrong", "T-1")
    listed = world.get("/dataset-changes?dataset=rivers&kind=rollback")
    valid("dataset-changes", listed)
    (change,) = listed["changes"]
    assert (change["version"], change["to_version"], change["rationale"]) == (4, 2, "the unit is wrong")
    assert change["targets"] == [{"target": "local", "version": 4, "state": "shown"}]
    document = world.get(f"/dataset-changes/{change['change_id']}")
    valid("dataset-change", document)
    assert document == {"change": change}
    assert world.get("/dataset-changes?kind=lift")["changes"] == []
    assert world.ask("GET", "/dataset-changes/unknown").status_code == 404


def test_what_drifts_is_refused(world: World) -> None:
    """A version that came in between makes it another change: 409, and nothing is changed."""
    plan = world.get(f"{PATH}/withdrawal?window={SECOND}")["plan"]
    (world.folder / "incoming" / "a.csv").write_text("day,flow\n1,3\n")
    app = world.opened()
    app.run(RunRequest(source_id="river", actor="ann", window_spec="2026-01-04/P1D"))
    app.close()
    answer = world.change(f"{PATH}/withdrawal", digest=plan["digest"], window=SECOND)
    assert (answer.status_code, answer.json()["code"], shown(world)) == (409, "KFM306", 4)
    other = world.get(f"{PATH}/withdrawal")["plan"]
    answer = world.change(f"{PATH}/withdrawal", digest=other["digest"], window=SECOND)
    assert answer.status_code == 409, "the digest of another change"
    assert world.get("/dataset-changes")["changes"] == []


def test_what_can_not_be_planned(world: World) -> None:
    """A request that makes no sense is told so before anything is looked at."""
    for path, status in (
        ("rollback", 400),
        ("rollback?to_version=0", 400),
        ("rollback?to_version=9", 422),
        ("rollback?to_version=3", 422),
        ("withdrawal?window=yesterday", 422),
        ("withdrawal?window=2026-01-02/x", 422),
        ("withdrawal?target=local", 422),
        (f"withdrawal?target=local&window={SECOND}", 422),
        ("lift", 422),
    ):
        assert world.ask("GET", f"{PATH}/{path}").status_code == status, path
    assert world.ask("GET", "/datasets/unknown/withdrawal").status_code == 404
    assert world.change(f"{PATH}/retirement", digest="sha256:abc").status_code == 422
    assert world.change(f"{PATH}/retirement").status_code == 422


def test_a_withdrawn_window_is_gone_until_it_is_lifted(world: World) -> None:
    """Its item and every version that holds it are answered 410 with the tombstone; lifted, they come back
    with the next run."""
    item_id = world.get(f"{PATH}/versions/2")["items"][1]["item_id"]
    done = made(world, "withdrawal", f"?window={SECOND}", window=SECOND, rationale="the owner asked for it")
    assert (done.status_code, shown(world)) == (200, 2), done.text
    for path in (f"items/{item_id}", "versions/2", "versions/3"):
        answer = world.ask("GET", f"{PATH}/{path}", "cy")
        problem = answer.json()
        valid("problem", problem)
        assert (answer.status_code, problem["code"], problem["title"]) == (410, "KFM350", "Gone"), path
        (told,) = problem["tombstone"]["withdrawn"]
        assert (told["reason"], told["window_start"]) == ("the owner asked for it", "2026-01-02T00:00:00Z")
        assert "--lift" in problem["remedy"]
    assert world.get(f"{PATH}/versions/1")["items"]
    assert world.get(PATH)["state"] == "partly-withdrawn"
    rolled = world.ask("GET", f"{PATH}/rollback?to_version=3")
    assert (rolled.status_code, rolled.json()["code"]) == (410, "KFM351")
    lifted = made(world, "lift", f"?window={SECOND}", window=SECOND)
    assert lifted.status_code == 200, lifted.text
    assert world.ask("GET", f"{PATH}/items/{item_id}").status_code == 404, "nothing comes back by itself"
    assert world.get(f"{PATH}/versions/3")["items"]
    (world.folder / "incoming" / "a.csv").write_text("day,flow\n1,9\n")
    app = world.opened()
    app.run(RunRequest(source_id="river", actor="ann", window_spec=SECOND))
    app.close()
    assert world.get(f"{PATH}/items/{item_id}")["version"] == 6


@pytest.mark.parametrize(("verb", "word"), [("withdrawal", "withdrawn"), ("retirement", "retired")])
def test_a_dataset_that_is_gone(world: World, verb: str, word: str) -> None:
    """All that is read of it is answered 410, with when and why; its record stays, and lifting ends it."""
    assert made(world, verb, rationale="consent was withdrawn").status_code == 200
    for path in ("", "/versions/1", "/versions/4", "/items/any"):
        answer = world.ask("GET", f"{PATH}{path}", "cy")
        assert (answer.status_code, answer.json()["tombstone"]["state"]) == (410, word), path
        assert "consent was withdrawn" in answer.text
    assert world.get(f"{PATH}/versions?limit=1")["versions"][0]["by"] in ("withdraw", "retire")
    assert world.get("/dataset-changes", "cy")["changes"][0]["kind"] in ("withdraw", "retire")
    assert world.get(f"{PATH}/coverage")["dataset_id"] == "rivers", "what is expected is told, not content"
    path = world.folder / "kfm.yml"
    config = path.read_text()
    text = config.replace("  - id: rivers\n", "  - id: other\n").replace("dataset: rivers", "dataset: other")
    path.write_text(text)
    configure(world, "")
    assert world.ask("GET", f"{PATH}/coverage").status_code == 410, (
        "nor is it a 404 when it is declared no more"
    )
    path.write_text(config)
    configure(world, "")
    assert made(world, "lift").status_code == 200
    assert world.get(PATH)["state"] == "published"
    assert not (world.folder / "published/rivers/current/withdrawn.json").exists()


def test_a_purge_needs_two(world: World) -> None:
    """The first request waits: 202 with the request, also when it is sent again; approved, it is applied."""
    plan = world.get(f"{PATH}/withdrawal?purge=true")["plan"]
    body = {"digest": plan["digest"], "purge": True}
    asked = world.change(f"{PATH}/withdrawal", key="k", **body)
    valid("change", asked.json())
    assert (asked.status_code, asked.json()["applied"], shown(world)) == (202, False, 3), asked.text
    again = world.change(f"{PATH}/withdrawal", key="k", **body)
    assert (again.status_code, again.json()) == (202, asked.json())
    request_id = asked.json()["request"]["request_id"]
    assert world.change(f"/approvals/{request_id}/approve", "ann").status_code == 403
    assert world.change(f"/approvals/{request_id}/approve", "bob").status_code == 200
    done = world.change(f"{PATH}/withdrawal", key="another", **body)
    assert (done.status_code, done.json()["applied"], shown(world)) == (200, True, 0), done.text
    assert {one["state"] for one in done.json()["receipt"]["purges"]} == {"done"}
    assert made(world, "lift").status_code == 200
    for version in (1, 2, 3):
        answer = world.ask("GET", f"{PATH}/versions/{version}")
        assert answer.status_code == 410, "lifting brings no byte back"
        assert "for good" in answer.json()["remedy"]


def test_a_run_at_work_is_not_overtaken(world: World) -> None:
    """While a run holds the dataset, a change is answered 409, and may be sent again later."""
    plan = world.get(f"{PATH}/withdrawal")["plan"]
    app = world.opened()
    app.kernel.liveness.claim("other")
    fence = app.kernel.store.dataset_changes().hold("dataset:rivers", "x", "other", 60_000, lambda _: False)
    assert isinstance(fence, int)
    answer = world.change(f"{PATH}/withdrawal", key="k", digest=plan["digest"])
    assert (answer.status_code, answer.json()["code"]) == (409, "KFM501"), answer.text
    app.kernel.store.dataset_changes().free("dataset:rivers", fence)
    app.close()
    assert world.change(f"{PATH}/withdrawal", key="k", digest=plan["digest"]).status_code == 200


@pytest.mark.req("GOV-3")
def test_readers_look_and_change_nothing(world: World) -> None:
    """A preview is for all who may read; the change itself needs the role operate."""
    plan = world.get(f"{PATH}/retirement", "cy")["plan"]
    answer = world.change(f"{PATH}/retirement", "cy", digest=plan["digest"])
    assert (answer.status_code, answer.json()["code"], shown(world)) == (403, "KFM312", 3)
    assert world.change(f"{PATH}/retirement", "bob", digest=plan["digest"]).status_code == 403


def walked(world: World, path: str, name: str, who: str = "ann") -> list[Any]:
    """All of a list, row by row, by its cursors."""
    found: list[Any] = []
    cursor = ""
    for _ in range(50):
        page = world.get(f"{path}{'&' if '?' in path else '?'}limit=1{cursor}", who)
        assert len(page[name]) <= 1
        found = [*page[name], *found] if name == "windows" else [*found, *page[name]]
        assert page["more"] == (page["next"] is not None)
        if page["next"] is None:
            return found
        cursor = f"&cursor={quote(page['next'], safe='')}"
    raise AssertionError("it does not end")


@pytest.mark.req("DAT-1")
def test_lists_are_read_to_their_ends(world: World) -> None:
    """Windows, items and datasets, in each order and for each role: row by row they are what they are at
    once, and each is there once."""
    whole = world.get(f"{PATH}/coverage?limit=1000")
    assert (whole["next"], len(whole["windows"])) == (None, 3)
    assert walked(world, f"{PATH}/coverage", "windows") == whole["windows"]
    assert walked(world, f"{PATH}/coverage?state=published", "windows") == whole["windows"]
    version = world.get(f"{PATH}/versions/3")
    assert walked(world, f"{PATH}/versions/3", "items") == version["items"]
    for who in ("ann", "cy"):
        for order in ("name", "health", "lag", "holes", "newest"):
            every = world.get(f"/datasets?order={order}", who)
            valid("datasets", every)
            assert len(every["datasets"]) == 2
            assert walked(world, f"/datasets?order={order}", "datasets", who) == every["datasets"]
    assert "burials" not in str(world.ask("GET", "/datasets?limit=1", "cy").text)


def test_datasets_are_found_by_what_they_are(world: World) -> None:
    """By state, domain and a part of the name; a reader finds a masked dataset by none of them."""

    def found(query: str, who: str = "ann") -> list[str]:
        return [one["dataset_id"] for one in world.get(f"/datasets?{query}", who)["datasets"]]

    assert found("state=never") == ["burials"]
    assert found("domain=hydrology") == ["rivers"]
    assert found("find=URI") == ["burials"]
    assert found("find=uri", "cy") == []
    assert found("domain=general", "cy") == []
    (rivers,) = world.get("/datasets?find=rivers")["datasets"]
    assert (rivers["holes"], rivers["complete_percent"], rivers["owner"]) == (0, 100, None)
    for query in ("order=odd", "state=odd", "limit=0", "cursor=x", "cursor=1", "find=%00", "page=2"):
        assert world.ask("GET", f"/datasets?{query}").status_code == 400, query
    for query in ("cursor=x", "cursor=1.2", "cursor=-1"):
        assert world.ask("GET", f"{PATH}/coverage?{query}").status_code == 400, query


def test_two_versions_are_compared(world: World) -> None:
    """By files, columns and rows, against the version before or any other; what is withdrawn is gone, and the
    content of a masked dataset needs a role."""
    app = world.opened()
    (world.folder / "incoming" / "a.csv").write_text("day,flow,unit\n2026-01-03,7,m\n")
    window = f"{DAYS[2]}/P1D"
    app.run(RunRequest(source_id="river", actor="ann", window_spec=window))
    app.close()
    assert world.get(PATH)["head"]["version"] == 4
    found = world.get(f"{PATH}/versions/4/diff")
    valid("version-diff", found)
    assert (found["against"], found["files_changed"], found["files_unchanged"]) == (3, 1, 2)
    (one,) = found["tables"]
    assert (one["is_compared"], one["key"]) == (True, ["day"])
    assert [(each["kind"], each["column"]) for each in one["columns"]] == [("added", "unit")]
    assert [(row["kind"], row["key"], [cell["after"] for cell in row["cells"]]) for row in one["rows"]] == [
        ("changed", DAYS[2], ["7", "m"])
    ]
    since = world.get(f"{PATH}/versions/4/diff?against=1")
    assert since["summary"].startswith("2 files added, 0 changed, 0 removed, 1 unchanged; 2 rows added")
    back = world.get(f"{PATH}/versions/1/diff?against=4")
    assert (back["files_removed"], back["tables"][0]["removed"]) == (2, 1)
    first = world.get(f"{PATH}/versions/1/diff")
    assert (first["against"], first["files_added"]) == (None, 1)
    assert world.ask("GET", f"{PATH}/versions/4/diff?against=4").status_code == 422
    for path in ("versions/9/diff", "versions/x/diff", "versions/4/diff?against=99"):
        assert world.ask("GET", f"{PATH}/{path}").status_code == 404, path
    assert made(world, "withdrawal", f"?window={SECOND}", window=SECOND).status_code == 200
    assert world.ask("GET", f"{PATH}/versions/4/diff").status_code == 410
    assert world.ask("GET", "/datasets/burials/versions/1/diff", "cy").status_code in (403, 404)
    again = world.ask("GET", f"{PATH}/versions/1/diff")
    same = world.ask("GET", f"{PATH}/versions/1/diff", headers={"If-None-Match": again.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")


def test_each_target_says_how_far_it_is(world: World) -> None:
    """A target shows the head, or is behind by so many versions since the first of them; one whose folder was
    emptied shows nothing."""
    import shutil

    (target,) = world.get(PATH)["targets"]
    assert (target["state"], target["version"], target["head"], target["behind"]) == ("shown", 3, 3, 0)
    shutil.rmtree(world.folder / "published" / "rivers")
    summary = world.get(PATH)
    valid("dataset", summary)
    (target,) = summary["targets"]
    assert (target["state"], target["version"], target["behind"]) == ("behind", None, 3)
    versions = world.get(f"{PATH}/versions")["versions"]
    assert target["since"] == versions[-1]["promoted_at"]
    pending = world.get("/status")["pending_projections"]
    assert [(one["target"], one["promoted"]) for one in pending] == [("local", 3)]
