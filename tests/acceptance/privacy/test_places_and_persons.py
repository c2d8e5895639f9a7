"""What data says of places and persons is in no record of a public dataset, by whatever it is quoted."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import kfm
from kfm.app import App
from kfm.config.loader import load
from kfm.pipelines.project import run_pipeline
from kfm.runs.kernel import RunRequest

pytestmark = pytest.mark.req("RS-13")
QUOTED = "John <john.smith@example.com>, 785-555-0123, at 38.123456, -97.654321, ssn 123-45-6789"
TELLING = (b"john.smith", b"555-0123", b"38.12345", b"97.65432", b"123-45-6789")
CONFIG = """\
version: 1
environment: test
datasets:
  - {id: levels, rights: {license: CC0-1.0, care: {label: Public}}}
sources:
  - {id: daily, dataset: levels, kind: files, folder: incoming, pipeline: "quoting.py:publish"}
publish:
  - {kind: local, path: published}
incidents:
  - {kind: file, path: incidents.jsonl}
lineage: {export: file}
"""
PIPELINE = f"def publish(context):\n    raise ValueError({QUOTED!r} + 'x' * 10_000)\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "a.csv").write_text("day,flow\n1,2\n")
    (tmp_path / "kfm.yml").write_text(CONFIG)
    (tmp_path / "quoting.py").write_text(PIPELINE)
    return tmp_path


def records(folder: Path) -> dict[str, bytes]:
    """Every table and every file that was written, but for the sources."""
    found = {
        str(path): path.read_bytes()
        for path in (*folder.glob(".kfm/**/*"), folder / "incidents.jsonl")
        if path.is_file() and not path.name.startswith("kfm.db")
    }
    with closing(sqlite3.connect(folder / ".kfm" / "kfm.db", isolation_level=None)) as database:
        for line in database.iterdump():
            name = " ".join(line.split()[:3])
            found[name] = found.get(name, b"") + line.encode()
    return found


def told(folder: Path) -> list[tuple[str, bytes]]:
    return [(name, word) for name, data in records(folder).items() for word in TELLING if word in data]


def test_an_exception_that_quotes_data(project: Path) -> None:
    """Run, attempt, invocation, quarantine, incident, notification, lineage and logs say what was removed."""
    app = App(load(str(project / "kfm.yml")), read_only=False, progress=None)
    report = app.run(RunRequest(source_id="daily", actor="ann", rationale=f"asked for: {QUOTED}"))
    run = report.run
    app.close()
    assert run is not None
    assert told(project) == []
    kept = records(project)
    assert b"[coordinates removed]" in kept['INSERT INTO "runs"']
    assert all(len(line) < 10_000 for line in kept['INSERT INTO "runs"'].split(b"INSERT INTO"))


def test_checks_parameters_and_errors_of_nodes(project: Path) -> None:
    """The detail of a check, a parameter and an exception are kept without them; the pipeline had them."""
    seen: list[object] = []
    flow = kfm.Pipeline("flow")

    @flow.node("flow.checked", params={"aoi": [-97.654321, 38.123456], "contact": QUOTED, "lat": 38.123456})
    def checked(aoi: list[float], contact: str, lat: float, ctx: Any) -> int:
        seen.extend((aoi, contact, lat))
        ctx.validate("inside", False, QUOTED)
        return 1

    @flow.node("flow.raised")
    def raised() -> int:
        raise ValueError(QUOTED)

    run_pipeline(flow, config=str(project / "kfm.yml"), keep_going=True)
    assert seen == [[-97.654321, 38.123456], QUOTED, 38.123456]
    assert told(project) == []
    assert any(b"[coordinates removed]" in data for data in records(project).values())
