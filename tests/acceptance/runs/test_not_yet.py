"""Data that has not come yet is waited for: no run, no attempt spent, no quarantine."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from tests.acceptance.runs.conftest import Inside, http_source
from tests.crash.project import table
from tests.crash.upstream import Upstream

pytestmark = pytest.mark.req("DAT-2")

PAST = "2026-01-01/P1D"  # whose time is over


def waiting(project: Inside) -> list[tuple[object, ...]]:
    return project.rows("SELECT state, blocked_by, tries, outcome FROM requests")


def make_due(project: Inside) -> None:
    with closing(sqlite3.connect(project.folder / ".kfm" / "kfm.db", isolation_level=None)) as database:
        database.execute("UPDATE requests SET not_before_ms = 0 WHERE state = 'open'")


@pytest.fixture
def late(project: Inside, upstream: Upstream) -> Inside:
    """A source whose address answers 404 until its data is there."""
    upstream.bodies.clear()
    project.configure(source=http_source(upstream, "not_yet: [404], expect: {within: P2D}"))
    return project


def test_a_late_window_waits_and_is_published_when_it_comes(late: Inside, upstream: Upstream) -> None:
    """Asked by a person: told so, exit 5, and a request that a service works off; asked again it is not
    doubled. Nothing ran, nothing failed, nothing is quarantined."""
    called = late.kfm("run")
    assert called.code == 5
    assert called.out.startswith("waiting")
    assert "KFM504" in called.err
    assert "Upstream answers 404; asked again at" in called.err
    assert ", until " in called.err
    assert waiting(late) == [("open", "not-yet", 0, None)]
    assert late.kfm("run").code == 5
    make_due(late)
    late.kfm("schedule", "run-due")
    assert waiting(late) == [("open", "not-yet", 0, None)]
    assert late.rows("SELECT * FROM runs") == []
    assert late.rows("SELECT * FROM held") == []
    assert late.rows("SELECT * FROM incidents") == []
    (request_id,) = late.rows("SELECT request_id FROM requests")[0]
    assert "is waiting for data" in late.kfm("explain", str(request_id)).out
    upstream.bodies["/levels.csv"] = table("gauge", 3)
    make_due(late)
    late.kfm("schedule", "run-due")
    assert waiting(late) == [("done", None, 1, "success")]
    assert late.rows("SELECT status, attempts FROM runs") == [("success", 1)]


def test_what_does_not_come_in_time_ends(late: Inside) -> None:
    """Past its time the request ends as missing, with no failed run; a person's own call fails."""
    called = late.kfm("run", "--window", PAST)
    assert called.code == 1
    assert "KFM640" in called.err
    assert waiting(late) == []
    late.kfm("run")
    with closing(sqlite3.connect(late.folder / ".kfm" / "kfm.db", isolation_level=None)) as database:
        database.execute(
            "UPDATE requests SET not_before_ms = 0, window_start_ms = 1767225600000,"
            " window_end_ms = 1767312000000"
        )
    late.kfm("schedule", "run-due")
    assert waiting(late) == [("done", None, 1, "absent")]
    assert late.rows("SELECT * FROM runs") == []
    assert late.rows("SELECT * FROM held") == []


def test_another_error_is_an_error(late: Inside, upstream: Upstream) -> None:
    """What is not listed fails as ever; upstream is not asked twice for it."""
    late.configure(source=http_source(upstream, "not_yet: [410, empty]"))
    called = late.kfm("run")
    assert called.code == 4
    assert late.rows("SELECT status, error_code FROM runs") == [("failed", "KFM404")]


def test_a_404_is_told_without_contradiction(late: Inside, upstream: Upstream) -> None:
    """Without `not_yet` a 404 is an error; its way out names the setting, and is not just to try again."""
    late.configure(source=http_source(upstream))
    called = late.kfm("run")
    assert called.code == 4
    assert "Try again later" not in called.err
    assert "not_yet: [404]" in called.err


@pytest.mark.parametrize("dry", [False, True])
def test_an_empty_folder_is_waited_for(project: Inside, dry: bool) -> None:
    """With `empty` a folder without files, or with files of no bytes, is not a success; a preview says so."""
    project.configure(extra="not_yet: [empty], expect: {by: '08:00', within: P2D}")
    for path in (project.folder / "incoming").iterdir():
        path.write_bytes(b"")
    called = project.kfm("run", *(["--dry-run"] if dry else []))
    assert called.code == 5
    assert "Upstream has nothing for this window" in called.err
    assert (waiting(project) == []) == dry


def test_an_unchanged_file_is_waited_for(project: Inside) -> None:
    """With `unchanged` the bytes of the newest window are no data for the next one; other bytes are."""
    project.configure(extra="not_yet: [unchanged], expect: {within: P2D}")
    assert project.kfm("run", "--window", "P2D").code == 0
    called = project.kfm("run")
    assert called.code == 5
    assert "what the newest published window holds" in called.err
    project.write("incoming/a.csv", table("a", 5))
    assert project.kfm("run").code == 0


def test_a_published_window_is_not_waited_for(late: Inside, upstream: Upstream) -> None:
    """What a window has is not "not yet" when upstream takes it away: that is an error."""
    upstream.bodies["/levels.csv"] = table("gauge", 3)
    assert late.kfm("run").code == 0
    upstream.bodies.clear()
    assert late.kfm("run").code == 4


@pytest.mark.parametrize("contract", [True, False])
def test_too_few_rows_are_refused(project: Inside, contract: bool) -> None:
    """`rows_min` refuses a window as a broken contract does, with or without a contract; enough rows pass."""
    source = "{id: notes, dataset: levels, kind: files, folder: incoming, expect: {rows_min: %d}%s}"
    more = ", contract: contract.odcs.yaml" if contract else ""
    project.configure(source=source % (8, more))  # the two tables have three and four
    called = project.kfm("run")
    assert called.code == 3
    assert "7 rows, where at least 8 are expected." in called.err
    project.configure(source=source % (7, more))
    assert project.kfm("run").code == 0


def test_rows_of_other_formats(project: Inside) -> None:
    """Features and elements are rows, too; what can't be counted is named."""
    source = "{id: notes, dataset: levels, kind: files, folder: incoming, expect: {rows_min: 4}}"
    project.configure(source=source)
    for path in (project.folder / "incoming").iterdir():
        path.unlink()
    project.write("incoming/a.json", '[{"a": 1}, {"a": 2}]')
    project.write("incoming/b.jsonl", '{"a": 1}\n{"a": 2}\n')
    assert project.kfm("run").code == 0
    project.write("incoming/b.jsonl", '{"a": 1}\n')
    project.write("incoming/c.bin", "binary")
    called = project.kfm("run")
    assert called.code == 3
    assert "3 rows, where at least 4 are expected. The rows of 1 file can't be counted: " in called.err
