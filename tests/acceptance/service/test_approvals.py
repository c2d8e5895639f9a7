"""A real service: a scheduled restricted dataset waits, and people with tokens decide over HTTP."""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.service.served import SECONDS_MAX, Served, serving
from tests.integration.service.project import make

pytestmark = pytest.mark.req("DAT-9")

READER, OPERATOR, APPROVER = "r" * 40, "o" * 40, "a" * 40
CRON = """\
version: 1
schedules:
  - {id: barrows-often, source: barrow, every: PT1S, missed: {run: none}}
"""
SOURCE = """\
  - {id: barrow, dataset: barrows, kind: files, folder: incoming}
people:
  - {subject: service, roles: [operate], accounts: ["%s"]}
  - {subject: ann, roles: [operate], tokens: ["sha256:%s"]}
  - {subject: rea, roles: [read], tokens: ["sha256:%s"]}
  - {subject: bob, roles: [approve], tokens: ["sha256:%s"]}
"""
TARGET = "publish:\n  - {kind: local, name: council, path: shown, datasets: [barrows]}\n"
DATASET = """\
  - {id: barrows, rights: {license: CC0-1.0, care: {label: Restricted, level: restricted}}}
sources:
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    make(folder)
    hashes = [sha256(token.encode()).hexdigest() for token in (OPERATOR, READER, APPROVER)]
    text = (folder / "kfm.yml").read_text().replace("sources:\n", DATASET, 1)
    sources, publish, rest = text.partition("publish:\n")
    if publish:
        text = sources + TARGET + rest
    people = SOURCE % (getpass.getuser(), *hashes)
    (folder / "kfm.yml").write_text(text + people + ("" if publish else TARGET))
    (folder / "cron.yml").write_text(CRON)
    return folder


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def until(found: Callable[[], Any], served: Served) -> Any:
    ends = time.monotonic() + SECONDS_MAX
    while not (value := found()):
        assert time.monotonic() < ends, served.said
        time.sleep(0.05)
    return value


def decide(served: Served, path: str, token: str, **body: str) -> httpx.Response:
    return httpx.post(
        f"{served.url}/api/v1{path}",
        json={"rationale": "council agreed", **body},
        headers={**bearer(token), "Idempotency-Key": path},
        timeout=20,
    )


def test_a_schedule_waits_for_a_person(project: Path) -> None:
    """Each second's scheduled time opens one approval and no second one; the approver sees name, changes and
    targets, the reader none of them; approved, it is published; approved in advance, nothing waits."""
    with serving(project) as served:

        def listed(token: str) -> list[dict[str, Any]]:
            answer = served.get("/api/v1/approvals", headers=bearer(token))
            assert answer.status_code == 200, answer.text
            return list(answer.json()["requests"])

        (asked,) = until(lambda: listed(APPROVER), served)
        one = f"/api/v1/approvals/{asked['request_id']}"
        shown = served.get(one, headers=bearer(APPROVER)).json()
        assert shown["request"]["dataset_id"] == "barrows"
        assert shown["request"]["targets"] == ["council shown"]
        assert any("barrows from barrow" in line for line in shown["preview"])
        hidden = served.get(one, headers=bearer(READER))
        assert "barrow" not in hidden.text
        with httpx.Client(base_url=f"{served.url}/console/", timeout=20) as browser:
            assert browser.post("sign-in", data={"token": APPROVER}).status_code == 303
            page = browser.get(f"requests/{asked['subject']}")
        assert page.status_code == 200, page.text
        assert "barrows" in page.text
        assert f"kfm approvals approve {asked['request_id']}" in page.text
        until(lambda: said_twice(served), served)
        assert [each["request_id"] for each in listed(APPROVER)] == [asked["request_id"]]
        path = f"/approvals/{asked['request_id']}/approve"
        assert decide(served, path, OPERATOR).status_code == 403
        assert decide(served, path, APPROVER).status_code == 200
        assert served.settled(asked["subject"], bearer(OPERATOR))["outcome"] == "success"
        stood = decide(served, "/sources/barrow/standing-approval", APPROVER, until="2027-01-31")
        assert stood.status_code == 200, stood.text
        revoked = decide(served, f"/approvals/{stood.json()['request']['request_id']}/revoke", APPROVER)
        assert revoked.json()["request"]["state"] == "revoked"


def said_twice(served: Served) -> bool:
    """Has a second scheduled time come, and found that the same waits?"""
    answer = served.get("/api/v1/requests?state=cancelled", headers=bearer(OPERATOR)).json()
    return any(one["outcome"] == "superseded" for one in answer["requests"])


def test_what_the_api_asks_for_waits_for_a_person(project: Path) -> None:
    """An update that a program asks for waits with its preview as a scheduled one does, and is published as
    soon as a second person has approved it."""
    (project / "cron.yml").write_text("version: 1\nschedules: []\n")
    with serving(project) as served:
        asked = httpx.post(
            f"{served.url}/api/v1/requests",
            json={"source": "barrow", "rationale": "new finds"},
            headers={**bearer(OPERATOR), "Idempotency-Key": "one"},
            timeout=20,
        )
        assert asked.status_code == 202, asked.text
        request_id = asked.json()["request"]["request_id"]

        def waiting() -> list[dict[str, Any]]:
            return list(served.get("/api/v1/approvals", headers=bearer(APPROVER)).json()["requests"])

        (approval,) = until(waiting, served)
        assert (approval["kind"], approval["subject"]) == ("update", request_id)
        now = served.get(f"/api/v1/requests/{request_id}", headers=bearer(OPERATOR)).json()["request"]
        assert now["state"] == "awaiting-approval"
        assert not (project / "shown").exists()
        path = f"/approvals/{approval['request_id']}/approve"
        assert decide(served, path, APPROVER).status_code == 200
        assert served.settled(request_id, bearer(OPERATOR))["outcome"] == "success"
