"""Names that must not be told, over everything that a service answers."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from tests.acceptance.service.served import SECRET, body, serving
from tests.integration.service.project import make

READER, OPERATOR = "r" * 40, "o" * 40
CRON = """\
version: 1
schedules:
  - {id: barrow-daily, source: barrow, cron: "15 7 * * *"}
  - {id: barrows-often, source: barrow, every: PT1S, missed: {run: none}}
  - {id: river-daily, source: river, cron: "15 7 * * *"}
"""
SOURCE = """\
  - {id: barrow, dataset: barrows, kind: files, folder: incoming, webhook: {secrets: ["env:RIVER_SECRET"]}}
people:
  - {subject: service, roles: [operate], accounts: ["%s"]}
  - {subject: ann, roles: [operate], tokens: ["sha256:%s"]}
  - {subject: rea, roles: [read], tokens: ["sha256:%s"]}
"""
DATASET = """\
  - {id: barrows, rights: {license: CC0-1.0, care: {label: Restricted, level: restricted}}}
sources:
"""
API = ("requests", "schedules", "runs", "status", "audit", "approvals", "quarantine", "switches")
PAGES = ("", "requests", "schedules", "runs", "audit", "held", "units")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    import getpass

    monkeypatch.setenv("RIVER_SECRET", SECRET)
    folder = tmp_path / "project"
    make(folder)
    hashes = [sha256(token.encode()).hexdigest() for token in (OPERATOR, READER)]
    text = (folder / "kfm.yml").read_text().replace("sources:\n", DATASET, 1)
    (folder / "kfm.yml").write_text(text + SOURCE % (getpass.getuser(), *hashes))
    (folder / "cron.yml").write_text(CRON)
    return folder


@pytest.mark.req("GOV-3")
def test_a_hidden_datasets_schedules_are_as_hidden_as_its_name(project: Path) -> None:
    """Who may only read finds neither a restricted dataset, nor its source, nor its schedules by their names:
    not in the API, not on a page, not in an address, and not by guessing. Who may operate does."""
    with serving(project) as served:
        sent = served.hook(body("one", source_id="barrow"), source="barrow")
        assert sent.status_code == 202, sent.text
        ann, rea = ({"Authorization": f"Bearer {token}"} for token in (OPERATOR, READER))
        request = sent.json()["request_id"]
        listed = served.get("/api/v1/schedules", headers=ann).json()["schedules"]
        assert {each["schedule_id"] for each in listed} == {"barrow-daily", "barrows-often", "river-daily"}
        told = [served.get(f"/api/v1/{one}", headers=rea).text for one in (*API, f"requests/{request}")]
        told.append(served.get(f"/api/v1/explain/{request}", headers=rea).text)
        told.append(served.get("/metrics", headers=rea).text)
        assert served.get("/api/v1/schedules/barrow-daily/instants", headers=rea).status_code == 404
        hidden = served.get("/api/v1/schedules", headers=rea).json()["schedules"]
        masks = [each["schedule_id"] for each in hidden if each["schedule_id"] != "river-daily"]
        assert len(masks) == 2
        by_mask = served.get(f"/api/v1/schedules/{masks[0]}/instants", headers=rea)
        assert by_mask.status_code == 200
        told.append(by_mask.text)
        with httpx.Client(base_url=f"{served.url}/console/", timeout=20) as browser:
            assert browser.post("sign-in", data={"token": READER}).status_code == 303
            told += [browser.get(page).text for page in PAGES]
            told.append(browser.get(f"schedules/{masks[0]}").text)
            assert browser.get(f"schedules/{masks[0]}").status_code == 403
            assert browser.get("schedules/barrow-daily").status_code == 404
        assert [text[:200] for text in told if "barrow" in text.lower()] == []
        assert all(secret not in text for text in told for secret in (SECRET, READER, OPERATOR))
