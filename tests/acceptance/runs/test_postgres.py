"""The same kernel with its ledger on a real PostgreSQL server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

CONFIG = """version: 1
environment: fleet
store: env:KFM_TEST_DSN
lease: {seconds: 1}
datasets:
  - {id: flow, rights: {license: CC0-1.0, care: {label: Public}}}
sources:
  - {id: files, dataset: flow, kind: files, folder: incoming, mode: replace, pipeline: "slow.py:run"}
publish:
  - {kind: local, path: published}
"""
PIPELINE = """import os, time
from pathlib import Path

def run(context):
    Path("started").touch()
    if os.path.exists("wait"):
        time.sleep(60)
    for entry in context.inputs:
        context.publisher.write_file(entry.path, entry.fetched)
"""


@pytest.fixture
def project(tmp_path: Path, postgres_database: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "flow.csv").write_text("site,cfs\na,1\n")
    (tmp_path / "kfm.yml").write_text(CONFIG)
    (tmp_path / "slow.py").write_text(PIPELINE)
    monkeypatch.setenv("KFM_TEST_DSN", postgres_database)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def start(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kfm", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def call(*words: str) -> tuple[int, Any]:
    process = start(*words, "--json")
    out, err = process.communicate(timeout=60)
    assert out, err
    answer = json.loads(out)
    assert "results" in answer, (answer, err)
    return process.returncode, answer


@pytest.mark.req("UPD-4", "UPD-5", "UPD-8")
def test_a_life_on_postgresql(project: Path) -> None:
    """First update, no-op, late data, and many at once: as on SQLite."""
    assert call("run")[1]["results"][0]["word"] == "published"
    assert call("run")[1]["results"][0]["outcome"] == "noop"
    (project / "incoming" / "flow.csv").write_text("site,cfs\na,2\n")
    code, answer = call("run")
    assert (code, answer["results"][0]["version"]) == (0, 2)
    (project / "incoming" / "flow.csv").write_text("site,cfs\na,3\n")
    crowd = [start("run", "--json") for _ in range(4)]
    outcomes = [json.loads(one.communicate(timeout=60)[0])["results"][0]["outcome"] for one in crowd]
    assert outcomes.count("success") == 1
    assert set(outcomes) <= {"success", "noop", "busy"}
    assert (project / "published" / "flow" / "current" / "data" / "flow.csv").read_text().endswith("a,3\n")
    assert not list(project.glob(".kfm/*.db")), "the ledger is elsewhere"


@pytest.mark.req("UPD-5", "UPD-8")
def test_a_killed_run_is_taken_over_at_once(project: Path) -> None:
    """A dead process of this machine blocks no person, though its lease has time left."""
    (project / "kfm.yml").write_text(CONFIG.replace("seconds: 1", "seconds: 600"))
    (project / "wait").touch()
    victim = start("run")
    for _ in range(600):
        if (project / "started").exists() or victim.poll() is not None:
            break
        os.sched_yield()
        try:
            victim.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            continue
    victim.send_signal(signal.SIGKILL)
    victim.communicate(timeout=10)
    (project / "wait").unlink()
    code, answer = call("run")
    assert (code, answer["results"][0]["word"]) == (5, "waiting"), "a machine obeys its time"
    code, answer = call("run", "--now", "--rationale", "I killed it")
    assert (code, answer["results"][0]["word"]) == (0, "published")


@pytest.mark.req("UPD-7")
def test_a_dry_run_leaves_the_server_alone(project: Path) -> None:
    """Before the first run, a dry-run makes no table."""
    assert call("run", "--dry-run")[0] == 0
    import psycopg

    with psycopg.connect(os.environ["KFM_TEST_DSN"]) as connection:
        row = connection.execute(
            "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'"
        ).fetchone()
    assert row == (0,)
    assert not (project / ".kfm").exists()


@pytest.mark.req("FLT-1")
def test_a_status_and_a_scrape_are_one_transaction_each(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much they read, and of one moment: what is committed meanwhile is not seen."""
    from kfm.app import open_app
    from kfm.config.loader import load
    from kfm.db.postgres import PostgresDatabase, PostgresSession
    from kfm.reports.status import read_status
    from kfm.web.metrics import Scrape

    assert call("run")[1]["results"][0]["word"] == "published"
    begun, beside = list[object](), list[object]()
    transaction, every = PostgresDatabase.transaction, PostgresSession.all

    def counted(database: PostgresDatabase, begin: str | None = None) -> Any:
        begun.append(database)
        return transaction(database, begin)

    def interrupted(session: PostgresSession, name: str, /, **parameters: Any) -> Any:
        if not beside:
            beside.append(
                start("switch", "set", "paused", "--all", "--rationale", "Looked at meanwhile").communicate(
                    timeout=60
                )
            )
        return every(session, name, **parameters)

    with open_app(load(None), read_only=True) as app:
        app.ledger.now_ms()
        monkeypatch.setattr(PostgresDatabase, "transaction", counted)
        read_status(app, with_needs=True)
        assert len(begun) == 1
        begun.clear()
        Scrape(lambda: nullcontext(app)).text()
        assert len(begun) == 1
        with app.ledger.moment():
            app.ledger.heads()
            monkeypatch.setattr(PostgresSession, "all", interrupted)
            assert read_status(app).document["switches"] == []
            assert beside
        assert len(read_status(app).document["switches"]) == 1
