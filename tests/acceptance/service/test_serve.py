"""`kfm serve` as its users meet it: a process, its addresses, and how it ends."""

from __future__ import annotations

import getpass
import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.acceptance.service.served import SECONDS_MAX, SECRET, Served, body, serving
from tests.integration.service.project import make

CRON = """\
version: 1
schedules:
  - {id: each-second, source: river, every: PT1S, missed: {run: none}}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RIVER_SECRET", SECRET)
    make(tmp_path / "project")
    return tmp_path / "project"


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


@pytest.mark.req("UPD-12", "TRG-2", "TRG-4")
def test_a_webhook_from_the_post_to_the_run(project: Path) -> None:
    """A signed request is accepted once, run once, and remembered: also by the next process."""
    with serving(project) as served:
        sent = body("one")
        first = served.hook(sent)
        assert first.status_code == 202, first.text
        request_id = first.json()["request_id"]
        ended = served.settled(request_id)
        assert (ended["outcome"], ended["kind"]) == ("success", "webhook")
        again = served.hook(sent)
        assert again.status_code == 409
        assert again.json()["request_id"] == request_id
        assert again.json()["run_id"] == ended["run_id"]
        assert served.stop() == 0
        assert "stopped" in served.said
    with serving(project) as served:
        late = served.hook(body("one"))
        assert (late.status_code, late.json()["run_id"]) == (409, ended["run_id"])
    shown = kfm(project, "show", ended["run_id"], "--json")
    assert shown.returncode == 0
    assert SECRET not in shown.stdout + served.said


@pytest.mark.req("TRG-4")
def test_a_signed_dry_run_changes_nothing(project: Path) -> None:
    """It answers with what would change; the same id can then be used for real."""
    with serving(project) as served:
        preview = served.hook(body("one", dry_run=True))
        assert preview.status_code == 200, preview.text
        assert preview.json()["outcome"] == "planned"
        assert preview.json()["plan"]["tally"]["added"] == 1
        assert served.get("/api/v1/runs").json()["runs"] == []
        assert served.get("/api/v1/requests").json()["requests"] == []
        assert served.hook(body("one")).status_code == 202


@pytest.mark.req("UPD-13", "TRG-2")
def test_schedules_are_kept(project: Path) -> None:
    """Instants come, become requests, and each has a run; two processes share them."""
    (project / "cron.yml").write_text(CRON)
    with serving(project) as one, serving(project) as other:
        seen: set[str] = set()
        while len(seen) < 3:
            listed = one.get("/api/v1/requests", params={"schedule": "each-second"}).json()["requests"]
            seen = {each["instant"] for each in listed if each["state"] == "done"}
            assert len({each["instant"] for each in listed}) == len(listed)
        assert other.process.poll() is None


@pytest.mark.req("UPD-12")
def test_a_flood_of_idle_connections_leaves_the_ledger_usable(project: Path) -> None:
    """With few descriptors and many silent connections, webhooks are accepted and run, and it is ready."""
    with serving(project, descriptors=(128, 256)) as served, ExitStack() as stack:
        limits = Path(f"/proc/{served.process.pid}/limits").read_text()
        assert re.search(r"Max open files +256 +256", limits)  # raised to what is allowed
        assert "at most 128 connections" in served.said
        address = urlsplit(served.url)
        for _ in range(600):
            stack.enter_context(socket.create_connection((address.hostname, address.port), 20))
        assert served.get("/readyz").json() == {"status": "ready"}
        accepted = served.hook(body("one"))
        assert accepted.status_code == 202, accepted.text
        assert served.settled(accepted.json()["request_id"])["outcome"] == "success"
        assert "unable to open" not in served.said


@pytest.mark.req("UPD-13")
def test_schedules_are_read_while_it_runs(project: Path) -> None:
    """A file of schedules that comes, breaks and changes counts without a restart; a broken one is told."""
    with serving(project) as served:
        (project / "cron.yml").write_text(CRON)
        _until(lambda: _fired(served, "each-second") >= 1)
        (project / "cron.yml").write_text("schedules: [")
        _until(lambda: served.get("/api/v1/status").json()["not_in_force"] == ["schedules"])
        before = _fired(served, "each-second")
        _until(lambda: _fired(served, "each-second") > before)
        (project / "cron.yml").write_text(CRON.replace("each-second", "second"))
        _until(lambda: _fired(served, "second") >= 1)
        assert served.get("/api/v1/status").json()["not_in_force"] == []
        assert "stays in force" in served.said


def _fired(served: Served, schedule: str) -> int:
    return len(served.get("/api/v1/requests", params={"schedule": schedule}).json()["requests"])


def _until(holds: Callable[[], bool]) -> None:
    ends = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.05)


@pytest.mark.req("UPD-12")
def test_a_secret_is_changed_while_it_runs(project: Path) -> None:
    """What is signed with the new secret of a file is taken a moment later, with the old one no more."""
    (project / "kfm.yml").write_text((project / "kfm.yml").read_text().replace("env:RIVER_SECRET", "file:s"))
    (project / "s").write_text(SECRET)
    other = "another secret of the river, long enough"
    with serving(project) as served:
        assert served.hook(body("one")).status_code == 202
        (project / "s").write_text(other)
        _until(lambda: served.hook(body("two"), secret=other).status_code == 202)
        assert served.hook(body("three")).status_code == 403
        assert other not in served.said


def test_every_address_answers(project: Path) -> None:
    """The console, the API, the catalogue, metrics and both health checks are there, under a prefix too."""
    for prefix in ("", "/kfm"):
        with serving(project, "--prefix", prefix) as served:
            assert served.get("/livez").json() == {"status": "ok"}
            assert served.get("/readyz").json() == {"status": "ready"}
            home = served.get("/")
            assert home.status_code == 307
            assert home.headers["location"] == f"{prefix}/console/"
            assert "text/html" in served.get("/console/").headers["content-type"]
            assert served.get("/api/v1/openapi.json").json()["openapi"].startswith("3.")
            assert "kfm_" in served.get("/metrics").text
            landing = served.get("/stac", follow_redirects=True).json()
            assert landing["type"] == "Catalog"
            for link in landing["links"]:
                if link["rel"] in ("self", "data", "search"):
                    assert httpx.get(link["href"], follow_redirects=True).status_code == 200, link
            assert served.get("/nowhere").status_code == 404
            assert served.get("/api/v1/runs", headers=ELSEWHERE).status_code == 421
            assert served.stop(signal.SIGINT) == 130


ELSEWHERE = {"Host": "10.231.0.7:8377"}  # as a kubelet names a pod


@pytest.mark.req("FLT-4")
def test_health_is_answered_under_any_name(project: Path) -> None:
    """By address or by any name, below a prefix too; nothing else is, nor are metrics without a token."""
    for prefix in ("", "/kfm"):
        with serving(project, "--prefix", prefix) as served:
            for path in ("/livez", "/readyz"):
                assert served.get(path, headers=ELSEWHERE).status_code == 200
            for path in ("/metrics", "/", "/console/", "/api/v1/runs", "/stac/", "/livez/x", "/x/livez"):
                assert served.get(path, headers=ELSEWHERE).status_code == 421, path
            inside = served.url.removesuffix(prefix)
            assert httpx.get(f"{inside}/livez", headers=ELSEWHERE).status_code == 200


@pytest.mark.req("FLT-4")
def test_metrics_are_answered_under_any_name_to_who_has_a_token(project: Path) -> None:
    """Prometheus asks by address; without its token it learns nothing."""
    token = "kfm_reader_of_metrics_0123456789abcdef"
    hashed = f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"
    with (project / "kfm.yml").open("a") as file:
        file.write(
            f"people:\n  - {{subject: scraper, roles: [read], tokens: ['{hashed}']}}\n"
            f"  - {{subject: service, roles: [operate], accounts: ['{getpass.getuser()}']}}\n"
        )
    with serving(project) as served:
        bearer = {**ELSEWHERE, "Authorization": f"Bearer {token}"}
        assert "kfm_" in served.get("/metrics", headers=bearer).text
        assert served.get("/metrics", headers=ELSEWHERE).status_code == 401
        assert served.get("/api/v1/runs", headers=bearer).status_code == 421


@pytest.mark.req("FLT-4")
def test_a_service_that_is_stopped_is_alive_and_not_ready(project: Path) -> None:
    """From SIGTERM on it says so while it goes on answering, takes what is sent all the same, and ends."""
    with (project / "kfm.yml").open("a") as file:
        file.write("serve: {drain_seconds: 1.5}\n")
    with serving(project) as served:
        with httpx.Client(base_url=served.url, timeout=20) as client:
            assert client.get("/readyz").status_code == 200
        began = time.monotonic()
        served.process.send_signal(signal.SIGTERM)
        _until(lambda: served.get("/readyz").status_code == 503)
        assert served.get("/livez").status_code == 200
        taken = served.hook(body("late"))
        assert taken.status_code == 202
        assert served.process.wait(SECONDS_MAX) == 0
        assert 1.5 <= time.monotonic() - began < 10
        assert "Traceback" not in served.said
    with serving(project) as served:  # the next one runs it
        assert served.settled(taken.json()["request_id"])["state"] == "done"


def test_no_other_address_without_tokens(project: Path) -> None:
    """An address that others reach is refused while no person has a token."""
    ended = kfm(project, "serve", "--host", "0.0.0.0", "--port", "0")
    assert ended.returncode == 2
    assert "token" in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "told", "code"),
    [
        (("--host", "nowhere"), "no address", 2),
        (("--prefix", "kfm/"), "slash", 2),
        (("--port", "70000"), "70000", 2),
    ],
)
def test_nonsense(project: Path, arguments: tuple[str, ...], told: str, code: int) -> None:
    """What can't be meant is refused before anything is opened."""
    ended = kfm(project, "serve", *arguments)
    assert (ended.returncode, told in ended.stderr) == (code, True), ended.stderr


def test_a_port_that_is_taken(project: Path) -> None:
    """It says which one, and how to choose another."""
    with serving(project) as served:
        port = served.url.rpartition(":")[2]
        ended = kfm(project, "serve", "--port", port)
        assert ended.returncode == 4
        assert port in ended.stderr
        assert "--port" in ended.stderr
