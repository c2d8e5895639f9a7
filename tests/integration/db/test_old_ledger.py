"""Ledgers that earlier releases made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from kfm.db.queries import migration_files
from tests.integration.db import old_project
from tests.integration.db.old_project import DATA, WINDOW, Project, restore, scan

RELEASES = sorted(path.name for path in DATA.iterdir())


@pytest.fixture(params=RELEASES)
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Project:
    opened = restore(DATA / request.param, tmp_path)
    assert old_project.schema_of(opened) == int(request.param.removeprefix("schema-"))
    return opened


@pytest.mark.req("WAL-21")
def test_it_opens_and_answers(project: Project) -> None:
    """A ledger made by the release before opens, and what was on record is still on record."""
    assert project.ask("status")["environment"] == "archive"
    runs = {(run["source_id"], run["status"], run["revision"]) for run in project.ask("runs")["runs"]}
    assert runs == {("note", "success", 0), ("note", "success", 1), ("sketch", "failed", 0)}
    (held,) = project.ask("quarantine", "list")["held"]
    (asked,) = project.ask("approve")["requests"]
    assert held["held_id"] in json.dumps(asked)
    states = [each["state"] for each in project.ask("requests", "list")["requests"]]
    assert states == ["open", "open"]
    assert len(project.ask("nodd", "units", "--status", "succeeded")["units"]) == 2
    assert len(project.ask("nodd", "dead", "list")["dead"]) == 1
    assert {each["name"] for each in project.ask("branch", "list")["branches"]} == {"main", "review"}


@pytest.mark.req("WAL-21")
@pytest.mark.slow
def test_it_explains(project: Project) -> None:
    """Every record of the release before is explained: runs, refusals, datasets, requests, units, passes."""
    runs = [run["run_id"] for run in project.ask("runs")["runs"]]
    requests = [each["request_id"] for each in project.ask("requests", "list")["requests"]]
    units = [unit["wal_id"] for unit in project.ask("nodd", "units")["units"]]
    passes = [each["run_id"] for each in project.ask("run-state", "list")["passes"]]
    datasets = ["notes", "sketches", "minutes", "burials"]
    for one in [*runs, *requests[:1], *units[:1], *passes, *datasets, "last/flow.total"]:
        found = project.ask("explain", one)
        assert found["chain"], one


@pytest.mark.req("WAL-21")
@pytest.mark.slow
def test_it_goes_on_working(project: Project) -> None:
    """With a ledger made by the release before, work goes on: what stands is unchanged, what is new runs."""
    same = project.ask("run", "--source", "note", "--window", WINDOW)
    assert [each["outcome"] for each in same["results"]] == ["noop"]
    new = project.ask("run", "--source", "note", "--window", "2026-03-05/P1D")
    assert [each["outcome"] for each in new["results"]] == ["success"]
    project.run("run", "--source", "minute", "--window", WINDOW, expect=3)
    (asked,) = project.ask("approve")["requests"]
    project.run("approve", asked["request_id"], "--rationale", "agreed", who="cy")
    project.announce(scan(11), scan(12))
    project.run("worker", "--until-idle")
    assert len(project.ask("nodd", "units")["units"]) == 3
    project.run("pipeline", "run", "flow.py")
    latest = project.ask("run-state", "list")["passes"][0]["run_id"]
    assert {node["outcome"] for node in project.ask("run-state", "show", latest)["nodes"]} == {"skipped"}
    published = project.folder / "published" / "notes" / "current" / "data"
    assert sorted(path.name for path in published.rglob("*.csv")) == ["a.csv", "a.csv", "b.csv", "b.csv"]


@pytest.mark.req("GOV-2", "WAL-21")
@pytest.mark.slow
def test_it_verifies(project: Project) -> None:
    """A ledger made by the release before verifies, before and after more work; so does a bundle of it."""
    for _ in range(2):
        assert project.ask("audit", "verify")["sound"]
        project.run("run", "--source", "note", "--window", "2026-03-06/P1D")
        project.run("audit", "seal")
    first = project.ask("runs", "--source", "note")["runs"][-1]["run_id"]
    project.run("export", first, "--to", "evidence.zip")
    project.run("export", "--verify", "evidence.zip")


@pytest.mark.req("WAL-21", "GRO-1")
def test_its_versions_get_trees(project: Project) -> None:
    """`kfm gc --apply` gives the versions of the release before their trees: they are the same versions, and
    the next one shares with them."""
    import apsw

    def rows(sql: str) -> list[tuple[int, ...]]:
        database = apsw.Connection(str(project.folder / ".kfm" / "kfm.db"))
        found = list(database.execute(sql))
        database.close()
        return found

    assert rows("SELECT COUNT(*) FROM versions") > [(0,)]
    before = project.ask("dataset", "show", "notes")
    project.run("gc", "--apply", "--rationale", "upgrade")
    assert rows("SELECT COUNT(*) FROM versions WHERE tree_id IS NULL") == [(0,)]
    assert project.ask("dataset", "show", "notes") == before
    same = project.ask("run", "--source", "note", "--window", WINDOW)
    assert [each["outcome"] for each in same["results"]] == ["noop"]
    assert project.ask("audit", "verify")["sound"]


@pytest.mark.req("WAL-21")
def test_a_changed_row_is_found(project: Project) -> None:
    """The ledger is verified as it was written by the release before: one changed row of it is found."""
    import apsw

    database = apsw.Connection(str(project.folder / ".kfm" / "kfm.db"))
    changed = "UPDATE governance SET rationale = 'none' WHERE rationale = 'stocktaking'"
    database.execute(changed)
    assert database.changes() > 0
    database.close()
    assert not project.ask("audit", "verify", expect=1)["sound"]


def at_terminal(project: Project, *words: str) -> tuple[str, str]:
    """What a command writes to stdout, and to a terminal that is its stderr."""
    ours, theirs = os.openpty()
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "kfm", *words],
            cwd=project.folder,
            env={**project._environ, "KFM_TOKEN": old_project.TOKENS["ann"], "TERM": "xterm"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=theirs,
            text=True,
            timeout=old_project.SECONDS_MAX,
        )
    finally:
        os.close(theirs)
    shown = b""
    with suppress(OSError), os.fdopen(ours, "rb", buffering=0) as terminal:
        while some := terminal.read(65_536):
            shown += some
    assert ended.returncode == 0, (ended.stdout, shown)
    return ended.stdout, shown.decode()


@pytest.mark.req("WAL-21")
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_person_sees_how_far_its_upgrade_is(project: Project, form: str) -> None:
    """At a terminal the upgrade of a ledger of the release before is shown on stderr, once; programs that
    ask for JSON get that and nothing else."""
    words = ["run", "--source", "note", "--window", "2026-03-05/P1D"]
    out, shown = at_terminal(project, *words, *(["--json"] if form == "json" else []))
    assert ("upgrade the ledger" in shown) == (form == "text")
    assert "upgrade the ledger" not in out
    if form == "json":
        assert json.loads(out)["results"][0]["outcome"] == "success"
    _, again = at_terminal(project, *words)
    assert "upgrade the ledger" not in again


@pytest.mark.req("WAL-21")
def test_a_service_logs_its_upgrade(project: Project) -> None:
    """What works for long has a line for each migration in its log."""
    _, shown = at_terminal(project, "worker", "--until-idle", "--no-intake", "--log-format", "json")
    told = [json.loads(line)["message"] for line in shown.splitlines() if line.startswith("{")]
    upgrades = [line for line in told if line.startswith("upgrade the ledger, ")]
    assert len(upgrades) == len(migration_files()) - 19
    assert f"the ledger is upgraded, to migration {migration_files()[-1][0]}" in told
