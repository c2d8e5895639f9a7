"""A reader who asks everything that can be asked learns nothing of a hidden dataset."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import partial

import jsonschema_rs
import pytest

from kfm.app import open_app
from kfm.web.api.components import component_ref
from kfm.web.api.events import EVENTS
from kfm.web.api.operation_table import OPERATIONS
from kfm.web.console.actions import ACTIONS
from kfm.web.console.pages import PAGES
from kfm.web.metrics import Scrape
from kfm.web.openapi import api_openapi
from tests.integration.web.hidden_world import TELLING, HiddenWorld

pytestmark = pytest.mark.req("RS-13", "GOV-3")
GUESSES = (
    "osage-burials",
    "burial-feed",
    "burial-weekly",
    "cairn-list",
    "cairn-ring",
    "relic-feed",
    "relic-nightly",
    "wampum",
)
QUERIES = {  # what has to be given
    "listEvents": "?cursor=0",
    "previewRollback": "?to_version=4",
    "previewReplay": "?datasets=wampum",
    "selectUnits": "?datasets=wampum",
    "previewMissing": "?dataset=osage-burials",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> HiddenWorld:
    return HiddenWorld(tmp_path_factory.mktemp("hidden") / "project")


def told(text: str) -> list[str]:
    """What the text tells, in any case and with any separators."""
    return [word for word in TELLING if word in re.sub(r"[-_%]", "", text.lower())]


def subjects(world: HiddenWorld) -> dict[str, list[str]]:
    """Every id on record, by the name of the parameter that takes it."""
    runs = world.lists("/runs", "runs", "run_id")
    calls = [
        one["invocation_id"]
        for run_id in runs
        for one in world.api(f"/runs/{run_id}", "ann").json()["invocations"]
    ]
    masks = world.lists("/schedules", "schedules", "schedule_id", "cy")
    head = str(world.api("/datasets/wampum", "ann").json()["version"])
    found = {
        "run_id": runs,
        "held_id": world.lists("/quarantine?all=true", "held", "held_id"),
        "replay_id": world.lists("/replays", "replays", "replay_id"),
        "plan_id": world.lists("/plans", "plans", "plan_id"),
        "incident_id": world.lists("/incidents?all=true", "incidents", "incident_id"),
        "wal_id": world.lists("/units", "units", "wal_id"),
        "schedule_id": [*masks, "burial-weekly", "relic-nightly"],
        "dataset_id": [*masks, *GUESSES, *world.lists("/dataset-changes", "changes", "dataset_id", "cy")],
        "change_id": world.lists("/dataset-changes", "changes", "change_id"),
        "version": ["1", head],
        "item_id": [
            *(
                one["item_id"]
                for one in world.api(f"/datasets/wampum/versions/{head}", "ann").json()["items"]
            ),
            "wampum-feed-2026-01-01",
        ],
        "invocation_id": calls,
        "operation": [*ACTIONS],
        "feed_id": [*world.lists("/units", "units", "dataset"), *masks, *GUESSES],
        "message": [one.removeprefix("sha256:") for one in world.lists("/dead-letters", "dead", "message")],
        "request_id": [
            *world.lists("/requests", "requests", "request_id"),
            *world.lists("/approvals", "requests", "request_id"),
        ],
    }
    everything = [one for several in found.values() for one in several]
    return {**found, "what": [*everything, *GUESSES, f"{runs[0]}%231/transform"]}


def addresses(path: str, known: dict[str, list[str]]) -> Iterator[str]:
    fields = re.findall(r"{(\w+)(?::path)?}", path)
    for values in itertools.product(*(known[field] for field in fields)):
        yield re.sub(r":path}", "}", path).format(**dict(zip(fields, values, strict=True)))


def searched(known: dict[str, list[str]]) -> list[str]:
    """What a person may search for who has an id, or guesses at a name."""
    ids = [one[:12] for kind in ("run_id", "invocation_id", "request_id") for one in known[kind]]
    return [f"search?q={text}" for text in (*ids, *known["wal_id"], "wam", "bur", "rel", "e", "KFM300")]


def test_no_answer_of_the_api_tells(world: HiddenWorld) -> None:
    """Every GET of the description, for every id there is: no text, name or address of a hidden dataset.

    Each answer keeps to its schema, and who may operate is told: the texts are there.
    """
    known, described, leaks, seen = subjects(world), api_openapi(), [], set()
    for operation in OPERATIONS:
        if operation.method != "GET":
            continue
        schema = {**described, **component_ref(operation.answer)}
        shape = jsonschema_rs.validator_for(schema, validate_formats=True)
        for path in addresses(operation.path, known):
            path += QUERIES.get(operation.name, "")
            answer = world.api(path)
            if words := told(answer.text):
                leaks.append((operation.name, path, words, answer.text[:2000]))
            if answer.status_code == 200 and operation.media_type != EVENTS:
                shape.validate(answer.json())
            if told(world.api(path, "ann").text):
                seen.add(operation.name)
    assert leaks == []
    # These name no dataset, are masked for all, or are refused.
    quiet = {"whoami", "showProvenance", "showProvenanceOfChange", "showPreview", "showPreviewOfRun"}
    assert {one.name for one in OPERATIONS if one.method == "GET"} - seen == quiet


def test_no_page_of_the_console_tells(world: HiddenWorld) -> None:
    """Every page, for every id there is, and with every choice that its filters offer."""
    known, leaks, seen = subjects(world), [], set()
    cy, ann = world.signed_in("cy"), world.signed_in("ann")
    for page in PAGES:
        typed = searched(known) if page.path == "search" else []
        for path in (*addresses(page.path, known), *typed):
            answer = world.ask(f"/console/{path}", cookies=cy)
            assert answer.status_code in (200, 403, 404), path
            if words := told(answer.text):
                leaks.append((path, words, answer.text))
            for href in re.findall(r'href="(/console/[^"]*(?:masked|dataset|source)[^"]*)"', answer.text):
                if words := told(world.ask(href.replace("&amp;", "&"), cookies=cy).text):
                    leaks.append((href, words, ""))
            if told(world.ask(f"/console/{path}", "ann", cookies=ann).text):
                seen.add(page.path)
    assert [leak[:2] for leak in leaks] == [], leaks[0]
    silent = ("pipelines", "do/", "verify")  # forms say what they were given; a verdict names nothing
    assert {page.path for page in PAGES if not any(part in page.path for part in silent)} - seen == set()


def test_a_guess_is_not_confirmed(world: HiddenWorld) -> None:
    """A hidden name and a name that nothing has are answered alike, and neither is repeated by the API."""
    cookies = world.signed_in("cy")

    def alike(text: str, name: str) -> str:
        return text.replace(name, "NAME")

    for guess in GUESSES:
        for path in (
            "/api/v1/explain/{}",
            "/api/v1/datasets/{}",
            "/api/v1/datasets/{}/versions",
            "/api/v1/datasets/{}/versions/1",
            "/api/v1/datasets/{}/items/x",
            "/api/v1/datasets/{}/coverage",
            "/api/v1/datasets/{}/withdrawal",
            "/api/v1/dataset-changes?dataset={}",
            "/api/v1/explain/{}/x",
            "/api/v1/schedules/{}/instants",
            "/api/v1/runs?dataset={}",
            "/api/v1/runs?source={}",
            "/api/v1/requests?source={}",
            "/api/v1/requests?schedule={}",
            "/api/v1/quarantine?dataset={}",
            "/api/v1/units?dataset={}",
            "/api/v1/feeds/{}",
            "/api/v1/feeds/{}/failures",
            "/api/v1/watermarks?dataset={}",
            "/console/feeds/{}",
            "/api/v1/audit?subject={}",
            "/api/v1/audit?subject=dataset:{}",
            "/api/v1/audit?subject=schedule:{}",
            "/api/v1/incidents/{}",
            "/console/audit?subject={}",
            "/console/audit?subject=dataset:{}",
            "/console/runs?dataset={}",
            "/console/runs?source={}",
            "/console/requests?source={}",
            "/console/requests?schedule={}",
            "/console/held?dataset={}",
            "/console/units?dataset={}",
            "/console/schedules/{}",
        ):
            hidden, unknown = (
                world.ask(path.format(name), cookies=cookies) for name in (guess, "nothing-has-it")
            )
            assert hidden.status_code == unknown.status_code, path
            shown = alike(hidden.text, guess), alike(unknown.text, "nothing-has-it")
            times = re.compile(r"\d\d:\d\d(:\d\d(\.\d+)?)?")
            assert times.sub("", shown[0]) == times.sub("", shown[1]), path
            if path.startswith("/api"):
                assert guess not in hidden.text, path


def test_a_mask_finds_its_records(world: HiddenWorld) -> None:
    """A reader can follow a masked dataset through the records: the mask is a name like any other."""
    runs = world.api("/runs").json()["runs"]
    masks = [one["dataset_id"] for one in runs if one["dataset_id"].startswith("masked-")]
    assert len(set(masks)) == 3
    for mask in set(masks):
        found = [one["dataset_id"] for one in world.api(f"/runs?dataset={mask}").json()["runs"]]
        assert found == [mask] * masks.count(mask)
    audited = [mask for mask in set(masks) if world.api(f"/audit?subject=dataset:{mask}").json()["entries"]]
    assert len(audited) == 2, "switches of two of them were set"
    changed = world.api("/dataset-changes").json()["changes"]
    retired, mask = (changed[place]["dataset_id"] for place in (0, 1))
    assert world.api(f"/dataset-changes?dataset={mask}").json()["changes"] == changed[1:]
    assert len(world.api(f"/datasets/{mask}/versions").json()["versions"]) == 7
    gone = world.api(f"/datasets/{retired}")
    stands = gone.json()["tombstone"]
    assert (gone.status_code, stands["dataset_id"], stands["state"]) == (410, retired, "retired")
    assert (stands["withdrawn"][0]["reason"], gone.json()["remedy"]) == ("withheld", "withheld")
    public = next(one for one in runs if one["dataset_id"] == "rivers")
    assert (public["source_id"], public["work_key"].startswith("sha256:")) == ("river", True)


def test_no_metric_tells(world: HiddenWorld) -> None:
    """Labels with datasets, domains, providers and scopes of switches are masks."""
    text = Scrape(partial(open_app, world.loaded, read_only=True)).text()
    assert told(text) == []
    assert 'scope="domain:masked-' in text
