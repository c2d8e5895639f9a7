"""Promises of every operation, looked at in the table of operations: new ones are held to them, too."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from kfm.web.api.components import component_name
from kfm.web.api.events import EVENTS
from kfm.web.api.operation_table import OPERATIONS
from kfm.web.api.operations import Operation
from kfm.web.api.short_ids import takes_short_ids
from kfm.web.openapi import api_openapi
from kfm.web.problems import TITLES
from tests.integration.web.api.frozen import PATH, broken, relied_on
from tests.integration.web.api.world import World

NAMES = r"{\w*(run|request|held|incident|replay|change|wal)_id}"
READS = [one for one in OPERATIONS if one.method == "GET" and one.media_type != EVENTS]
# Lists that are always whole: the configuration, or one record, bounds them.
WHOLE = {
    **dict.fromkeys(
        ("listSchedules", "listBreakers", "listSwitches", "listWatermarks"),
        "of the configuration",
    ),
    **dict.fromkeys(("listNodes", "listAttempts", "listLineage", "listLineageOfChange"), "of one record"),
}
# Points in time whose names are older than the rule; each stays.
OLDER_NAMES = {
    *(
        "anchor",
        "due",
        "end_time_utc",
        "event_time",
        "first_window",
        "instant",
        "newest",
        "next",
        "next_attempt",
    ),
    *("next_local", "next_try", "not_before", "start_time_utc", "time_range_end", "time_range_start"),
    *("watermark", "created_after", "created_before"),
}
NAMED = re.compile(r"at|since|until|from|to|start|end|[a-z_]+_(at|until|start|end)")
IDS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}|[0-9a-f]{13}-[0-9a-f]{20}")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("table") / "project").past()


def answers() -> dict[str, Any]:
    schemas: dict[str, Any] = api_openapi()["components"]["schemas"]
    return schemas


@pytest.mark.parametrize(
    "operation", [one for one in READS if one.name.startswith("list")], ids=lambda one: one.name
)
def test_every_list_has_a_cursor(operation: Operation) -> None:
    """A list is read to its end page by page, unless what it is of bounds it."""
    names = {one.name for one in operation.parameters}
    answer = answers()[component_name(operation.answer)]["properties"]
    assert (operation.name in WHOLE) is ("cursor" not in names)
    if "cursor" in names:
        assert {"limit", "cursor"} <= names
        assert {"more", "next"} <= set(answer)


@pytest.mark.parametrize("operation", READS, ids=lambda one: one.name)
def test_what_has_more_says_how_it_goes_on(operation: Operation) -> None:
    """Where an answer may be cut, the rest can be had: it has a `next`, and a cursor takes it."""
    answer = answers()[component_name(operation.answer)].get("properties", {})
    if "more" in answer or "limit" in {one.name for one in operation.parameters}:
        assert {"more", "next"} <= set(answer), operation.name
        assert "cursor" in {one.name for one in operation.parameters}


def test_times_are_named_alike() -> None:
    """A point in time is called `…_at`, or by the end of a span that it is; older names stay as they are."""
    found = {
        name
        for component in answers().values()
        for name, schema in component.get("properties", {}).items()
        if "'date-time'" in str(schema) and NAMED.fullmatch(name) is None
    }
    assert found <= OLDER_NAMES, found - OLDER_NAMES
    run = answers()["Run"]["properties"]
    assert {"started_at", "ended_at", "start_time_utc", "end_time_utc"} <= set(run)


def test_titles_are_the_phrases_of_statuses() -> None:
    """A problem without a page of its own has the phrase of its status as title (RFC 9457, RFC 9110)."""
    assert {401: "Unauthorized", 404: "Not Found", 413: "Content Too Large"}.items() <= TITLES.items()
    documented = {
        int(status): answer["description"]
        for methods in api_openapi()["paths"].values()
        for operation in methods.values()
        for status, answer in operation["responses"].items()
        if int(status) >= 400
    }
    assert documented == {status: TITLES[status] for status in documented}


def addresses(world: World) -> list[str]:
    """Every address of a read that this world has something at."""
    known = {
        "runs": world.failed_id,
        "requests": _first(world, "/requests", "requests", "request_id"),
        "quarantine": _first(world, "/quarantine", "held", "held_id"),
        "incidents": _first(world, "/incidents", "incidents", "incident_id"),
        "schedules": "river-daily",
        "datasets": "rivers",
        "explain": world.run_id,
    }
    found = []
    for operation in READS:
        first = operation.path.split("/")[1]
        if not operation.fields:
            found.append(operation.shown_path)
        elif len(operation.fields) == 1 and known.get(first):
            query = "".join(f"?{one.name}=1" for one in operation.parameters if one.required)
            found.append(re.sub(r"{[^}]*}", str(known[first]), operation.path) + query)
    return found


def _first(world: World, path: str, rows: str, name: str) -> str | None:
    found = world.get(path)[rows]
    return str(found[0][name]) if found else None


def test_every_read_has_a_tag(world: World) -> None:
    """Every answer to a read has an entity tag, and a client that has the answer is told so."""
    seen = 0
    for path in addresses(world):
        first = world.ask("GET", path)
        if first.status_code != 200:
            assert first.status_code in (404, 409, 410, 422), (path, first.text)
            continue
        seen += 1
        again = world.ask("GET", path, headers={"If-None-Match": first.headers["etag"]})
        assert again.status_code == 304 or again.content != first.content, path  # it says how long ago
    assert seen >= 20


def test_every_id_in_a_path_may_be_short(world: World) -> None:
    """Wherever a path names a record by an id that was made, its beginning finds it."""
    seen = set()
    for path in addresses(world):
        found = IDS.search(path)
        whole = world.ask("GET", path)
        if found is None or whole.status_code != 200:
            continue
        short = world.ask("GET", path.replace(found[0], found[0][:13]))
        assert short.status_code == 200, (path, short.text)
        seen.add(path.split("/")[1])
    assert {"runs", "quarantine", "incidents", "explain"} <= seen
    takes = {one.path.split("/")[1] for one in OPERATIONS if takes_short_ids(one)}
    named = {one.path.split("/")[1] for one in OPERATIONS if re.search(NAMES, one.path)}
    assert named <= takes


def test_answers_are_compressed_for_who_takes_that(world: World) -> None:
    """With gzip where it is offered and worth it; the tag is another than that of the plain bytes."""
    plain = world.ask("GET", "/status", headers={"Accept-Encoding": "identity"})
    packed = world.ask("GET", "/openapi.json", headers={"Accept-Encoding": "br, gzip"})
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.headers["vary"] == "Accept-Encoding"
    assert int(packed.headers["content-length"]) * 4 < len(packed.content)
    assert packed.json() == world.get("/openapi.json")
    for refused in ("gzip;q=0", "gzip; q=0.0", "deflate", "x-gzip2"):
        assert (
            "content-encoding"
            not in world.ask("GET", "/openapi.json", headers={"Accept-Encoding": refused}).headers
        )
    path = f"/runs/{world.run_id}/provenance"
    small = world.ask("GET", path, headers={"Accept-Encoding": "gzip"})
    large = world.ask("GET", path, headers={"Accept-Encoding": "identity"})
    assert small.content == large.content
    assert small.headers["etag"] == f'{large.headers["etag"][:-1]}-gzip"'
    again = world.ask("GET", path, headers={"If-None-Match": small.headers["etag"]})
    assert (again.status_code, again.headers["etag"]) == (304, small.headers["etag"])


def test_a_page_for_people(world: World) -> None:
    """The address of the API is a page of every operation, what it takes and who may ask, without scripts."""
    page = world.ask("GET", "/", None)
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "script" not in page.headers["content-security-policy"]
    for operation in OPERATIONS:
        assert f'id="{operation.name}"' in page.text
        assert f"{operation.method} {operation.shown_path}" in page.text
    assert "<script" not in page.text
    assert len(page.content) <= 100_000
    assert world.ask("GET", "/?x=1", None).status_code == 400
    assert world.ask("POST", "/", None).status_code == 405


def test_pages_of_windows_and_scheduled_times(world: World) -> None:
    """Windows from the newest on, scheduled times from the first on: each is told once."""
    path = "/datasets/rivers/coverage"
    whole = world.get(f"{path}?limit=1000")["windows"]
    found: list[Any] = []
    cursor = ""
    for _ in range(len(whole) + 2):
        page = world.get(f"{path}?limit=1{cursor}")
        found = [*page["windows"], *found]
        cursor = f"&cursor={page['next']}"
        if not page["more"]:
            break
    assert len(whole) >= 2
    assert [one["window_start"] for one in found] == [one["window_start"] for one in whole]
    span = "start=2026-01-01T00:00:00Z&end=2026-01-09T00:00:00Z"
    path = f"/schedules/river-daily/instants?{span}"
    whole = world.get(path)["instants"]
    found, cursor = [], ""
    for _ in range(len(whole) + 2):
        page = world.get(f"{path}&limit=3{cursor}")
        found += page["instants"]
        assert page["start"] == "2026-01-01T00:00:00.000Z"
        if not page["more"]:
            assert page["next"] is None
            break
        cursor = f"&cursor={page['next']}"
    assert len(whole) == 8
    assert found == whole
    assert world.get(f"{path}&cursor=999999999999999")["instants"] == []


def test_pages_of_a_version(world: World) -> None:
    """The items of a version are read to the last one."""
    path = "/datasets/rivers/versions/1"
    whole = world.get(path)["items"]
    page = world.get(f"{path}?limit=1&cursor=0")
    assert page["items"] == whole[:1]
    assert world.get(f"{path}?cursor={len(whole)}")["items"] == []


def test_the_api_only_grows() -> None:
    """What clients were written for is still there: operations, parameters, members, types, names."""
    then = json.loads(PATH.read_text("utf-8"))
    assert list(broken(then, relied_on())) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda now: now["operations"].pop("GET /runs"), "GET /runs is gone"),
        (lambda now: now["operations"]["GET /runs"]["takes"].pop("since"), "does not take since"),
        (lambda now: now["operations"]["GET /runs"]["needs"].append("since"), "needs more"),
        (lambda now: now["operations"]["GET /runs"]["takes"]["status"].remove("failed"), "all values"),
        (lambda now: now["components"]["Run"]["members"].pop("run_id"), "Run.run_id is gone"),
        (lambda now: now["components"]["Run"]["members"]["run_id"].append("null"), "Run.run_id was"),
        (lambda now: now["components"]["Run"]["always"].remove("run_id"), "no longer always"),
        (lambda now: now["components"]["Start"]["always"].append("ticket"), "Start needs more"),
        (lambda now: now["components"].pop("Incident"), "component Incident is gone"),
    ],
)
def test_what_shrinks_is_found(change: Any, told: str) -> None:
    """Each way in which a client could break is noticed; what is new is not."""
    then, now = relied_on(), relied_on()
    now["operations"]["GET /new"] = now["operations"]["GET /runs"]
    now["components"]["Run"]["members"]["new_at"] = ["string"]
    assert list(broken(then, now)) == []
    change(now)
    assert any(told in one for one in broken(then, now))
