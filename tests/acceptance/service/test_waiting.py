"""A webhook's request that waits for a second person, as both of them see it on a terminal."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.service.served import SECRET, body, serving
from tests.integration.service.project import eventually, make


def kfm(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kfm", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "RIVER_SECRET": SECRET},
    )


@pytest.mark.req("TRG-4", "GOV-3")
def test_from_the_list_of_requests_to_the_approval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the list of requests names can be looked at, with its preview, and approved by the same id; what
    became of it is told with who asked, who agreed, and which run it was."""
    monkeypatch.setenv("RIVER_SECRET", SECRET)
    folder = tmp_path / "project"
    make(folder, webhook=", approval: required")
    with serving(folder) as served:
        request = served.hook(body("one", event_type="river.rose")).json()["request_id"]
        state = f"/api/v1/requests/{request}"
        eventually(lambda: served.get(state).json()["request"]["state"] == "awaiting-approval", served.said)
        shown = kfm(folder, "requests", "show", request[:13])
        facts = dict(re.split(r" {2,}", line, maxsplit=1) for line in shown.stdout.splitlines()[:15])
        assert "kfm approvals approve" in facts["reason"]
        assert facts["accepted at"].endswith(" UTC")
        assert re.search(r"^event +river\.rose$", shown.stdout, re.MULTILINE)
        assert re.search(r"^  \+ .*a\.csv", shown.stdout, re.MULTILINE)
        assert "1 added, 0 changed" in shown.stdout
        short = kfm(folder, "approve", request[:4], "--rationale", "looked at")
        assert (short.returncode, "characters" in short.stderr) == (2, True)
        agreed = kfm(folder, "approve", request[:13], "--rationale", "looked at", "--json")
        assert agreed.returncode == 0, agreed.stderr
        assert json.loads(agreed.stdout)["request"]["subject"] == request
        ended = served.settled(request)
        assert ended["outcome"] == "success"
        told = kfm(folder, "explain", request[:13]).stdout
        assert told.startswith(f"Request {request} was published")
        for part in ("webhook:river", "approved its preview", "looked at", ended["run_id"]):
            assert part in told
        of_run = kfm(folder, "explain", ended["run_id"]).stdout
        assert f"request {request}" in of_run
        again = kfm(folder, "approve", request[:13], "--rationale", "once more")
        assert (again.returncode, "approved" in again.stderr) == (3, True), again.stderr


@pytest.mark.req("TRG-4", "GOV-3")
def test_a_request_whose_preview_is_rejected_never_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An approver's no cancels the request that waited for it; the explanation says who, and why."""
    monkeypatch.setenv("RIVER_SECRET", SECRET)
    folder = tmp_path / "project"
    make(folder, webhook=", approval: required")
    with serving(folder) as served:
        request = served.hook(body("one", event_type="river.rose")).json()["request_id"]
        state = f"/api/v1/requests/{request}"
        eventually(lambda: served.get(state).json()["request"]["state"] == "awaiting-approval", served.said)
        no = kfm(folder, "approvals", "reject", request[:13], "--rationale", "not this one", "--json")
        assert no.returncode == 0, no.stderr
        assert json.loads(no.stdout)["request"]["state"] == "rejected"
        assert served.get(state).json()["request"]["state"] == "cancelled"
        late = kfm(folder, "approvals", "approve", request[:13], "--rationale", "after all")
        assert (late.returncode, "rejected" in late.stderr) == (3, True), late.stderr
        told = kfm(folder, "explain", request[:13]).stdout
        assert "rejected its preview" in told
        assert "not this one" in told
