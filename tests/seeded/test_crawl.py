"""Who follows links through the console gets pages, and a reader no name that is masked."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest

from kfm.web.api.operation_table import OPERATIONS
from kfm.web.console.pages import PAGES
from tests.seeded.crawl import crawl, kind_of
from tests.seeded.site import Site, Visitor, plain

EACH_KIND = 2
PAGE_BYTES_MAX = 100_000
HIDDEN = ("heritage", "tribal")  # in every name of the restricted dataset, of its source, domain and owner
IDS_MAX = 2
NOT_COME_TO = {"pipelines/{run_id}", "messages/{message}", "plans/{plan_id}"}  # the world has none
# What is asked of an operation that needs more than an id.
QUERIES = {
    "listEvents": "?cursor=0",
    "previewRollback": "?to_version=1",
    "previewMissing": "?dataset=ks-wells",
    "previewReplay": "?datasets=hrrr",
    "selectUnits": "?datasets=hrrr",
}
DOCUMENTED = {
    "showPreview": {404},  # no preview was asked for
    "showPreviewOfRun": {404},
    "showItem": {404},
    "showVersion": {404, 410},
    "previewLift": {409, 422},  # nothing is withdrawn
    "previewRollback": {409, 422},
    "previewWithdrawal": {409, 422},  # nothing is published
    "previewRetirement": {409, 422},
}


@pytest.mark.req("REL-4", "GOV-3")
@pytest.mark.parametrize("who", ["rea", "ann", "bob"])
def test_every_link_leads_to_a_page(site: Site, who: str) -> None:
    """From Home on, as reader, operator and approver: no dead link, no page above 100 kB, no masked name for
    readers; and every page of the table is come to."""
    broken, large, told, seen = [], [], [], set()
    for address, origin, status, text in crawl(site.as_person(who), EACH_KIND):
        seen.add(kind_of(address)[0])
        if status != 200:
            broken.append((address, origin, status, plain(text)[:300]))
        if len(text.encode()) > PAGE_BYTES_MAX:
            large.append((address, len(text.encode())))
        if who == "rea" and any(word in text.lower() for word in HIDDEN):
            told.append((address, origin))
    assert broken == []
    assert large == []
    assert told == []
    routes = {page.path for page in PAGES if not page.path.startswith(("do/", "search"))}
    assert routes - seen == NOT_COME_TO
    assert any(route.startswith("do/") for route in seen) == (who != "rea")


def _known(bob: Visitor) -> dict[str, list[str]]:
    """Some ids of each kind that the world has, by the parameter that takes them."""
    lists = {
        "run_id": ("/runs?limit=2", "runs"),
        "request_id": ("/requests?limit=2", "requests"),
        "schedule_id": ("/schedules", "schedules"),
        "held_id": ("/quarantine?limit=2", "held"),
        "incident_id": ("/incidents?limit=2", "incidents"),
        "wal_id": ("/units?limit=2", "units"),
        "change_id": ("/dataset-changes?limit=2", "changes"),
    }
    found = {
        name: [one[name] for one in bob.api(path)[rows]][:IDS_MAX] for name, (path, rows) in lists.items()
    }
    found["run_id"] += [one["run_id"] for one in bob.api("/runs?status=failed&limit=1")["runs"]]
    found["dataset_id"] = ["ks-wells", "ks-streamflow"]
    found["feed_id"] = ["hrrr"]
    found["version"] = ["1"]
    found["item_id"] = ["wells-2026-11-01"]
    found["what"] = [*found["run_id"], *found["wal_id"], "ks-wells", "KFM303"]
    return found


def _addresses(path: str, known: dict[str, list[str]]) -> Iterator[str]:
    fields = re.findall(r"{(\w+)(?::path)?}", path)
    for values in itertools.product(*(known.get(field, []) for field in fields)):
        yield path.replace(":path}", "}").format(**dict(zip(fields, values, strict=True)))


@pytest.mark.req("REL-4", "GOV-3")
@pytest.mark.parametrize("who", ["rea", "ann", "bob"])
def test_every_answer_of_the_api_is_there(site: Site, who: str) -> None:
    """Every GET of the table, for ids of each kind, as reader, operator and approver: an answer, or a refusal
    that is documented; and no masked name for readers."""
    visitor, known = site.as_person(who), _known(site.as_person("bob"))
    known["request_id"] += [one["request_id"] for one in visitor.api("/approvals")["requests"]][:1]
    broken, told, unasked = [], [], set()
    for operation in OPERATIONS:
        if operation.method != "GET":
            continue
        addresses = list(_addresses(operation.path, known))
        unasked |= set() if addresses else {operation.name}
        for path in addresses:
            answer = visitor.ask(f"/api/v1{path}{QUERIES.get(operation.name, '')}")
            allowed = {200, *DOCUMENTED.get(operation.name, ())}
            if operation.path.startswith(("/requests/", "/approvals/")):
                allowed |= {404}  # both have the parameter request_id
            if answer.status_code not in allowed:
                broken.append((operation.name, path, answer.status_code, answer.text[:300]))
            if who == "rea" and any(word in answer.text.lower() for word in HIDDEN):
                told.append((operation.name, path))
    assert broken == []
    assert told == []
    assert unasked == {"showDeadLetter", "showPlan", "showReplay"}  # the world has none
