"""Snapshots: sources without windows, and windows that replace each other."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from kfm.model.incidents import window_subject
from kfm.model.windows import SNAPSHOT
from tests.acceptance.runs.conftest import Inside
from tests.crash.project import table

pytestmark = pytest.mark.req("DAT-8")

WITHOUT = 'window: none, pattern: "*.csv"'
DAILY = 'mode: replace, path: "{name}"'
OLD, NEW = "2026-11-14/P1D", "2026-11-15/P1D"


def said(ended: Any) -> dict[str, Any]:
    """The one result of `kfm run --json`."""
    (only,) = json.loads(ended.out)["results"]
    return dict(only)


@pytest.fixture
def folder(project: Inside) -> Inside:
    """A folder whose files have no windows."""
    project.configure(
        source="{id: notes, dataset: levels, kind: files, folder: incoming, window: none, "
        'pattern: "*.csv", contract: contract.odcs.yaml}'
    )
    return project


@pytest.fixture
def daily(project: Inside) -> Inside:
    """A folder with a file for each day; each day takes the place of the one before."""
    project.configure(
        source="{id: notes, dataset: levels, kind: files, folder: incoming, mode: replace, "
        'pattern: "{window.start:date}.csv", path: levels.csv, contract: contract.odcs.yaml}'
    )
    for day in ("2026-11-14", "2026-11-15", "2026-11-16"):
        project.write(f"incoming/{day}.csv", table(day, 3))
    return project


def collection(project: Inside) -> dict[str, Any]:
    return dict(json.loads((project.folder / "published/levels/current/collection.json").read_bytes()))


def items(project: Inside) -> list[dict[str, Any]]:
    found = (project.folder / "published/levels/current/items").rglob("*.json")
    return [json.loads(one.read_bytes()) for one in sorted(found)]


def test_the_same_bytes_make_no_version_whatever_the_day(
    folder: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Content is the key: the next day asks for the same work, finds the same bytes and publishes nothing."""
    first = said(folder.kfm("run", "--json"))
    assert (first["word"], first["version"]) == ("published", 1)
    later(monkeypatch, days=3)
    os.utime(folder.folder / "incoming/a.csv")  # touched, not changed
    again = said(folder.kfm("run", "--json"))
    assert (again["word"], again["outcome"], again["version"]) == ("unchanged", "noop", 1)
    assert again["run_id"] == first["run_id"]
    folder.write("incoming/a.csv", table("a", 5))
    changed = said(folder.kfm("run", "--json"))
    assert (changed["word"], changed["version"]) == ("published", 2)
    shown = json.loads(folder.kfm("show", changed["run_id"], "--json").out)["run"]
    assert (shown["revision"], shown["window_spec"]) == (1, "none")


def later(monkeypatch: pytest.MonkeyPatch, *, days: int) -> None:
    """The clock of this process goes on by so many days."""
    from kfm.system import SystemClock

    now_ms = SystemClock.now_ms
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: now_ms(self) + days * 86_400_000)


def test_bytes_that_come_back_are_a_new_version(folder: Inside) -> None:
    """A, B, A are three versions: each time the head shows what the folder holds."""
    for number, rows in enumerate((3, 5, 3), start=1):
        folder.write("incoming/a.csv", table("a", rows))
        assert said(folder.kfm("run", "--json"))["version"] == number
    assert said(folder.kfm("run", "--json"))["word"] == "unchanged"


def test_its_item_has_the_time_of_its_files_and_no_made_up_day(folder: Inside) -> None:
    """The item is named after its source; its interval is that of the files' own times."""
    for name, second in (("a", 1_700_000_000), ("b", 1_700_003_600)):
        os.utime(folder.folder / f"incoming/{name}.csv", (second, second))
    folder.kfm("run")
    (item,) = items(folder)
    assert item["id"] == "notes"
    assert sorted(item["assets"]) == ["a.csv", "b.csv"]
    properties = item["properties"]
    assert properties["datetime"] == properties["end_datetime"] == "2023-11-14T23:13:20Z"
    assert properties["start_datetime"] == "2023-11-14T22:13:20Z"
    assert collection(folder)["extent"]["temporal"]["interval"] == [
        ["2023-11-14T22:13:20Z", "2023-11-14T23:13:20Z"]
    ]
    dcat = json.loads((folder.folder / "published/levels/current/dcat.jsonld").read_bytes())
    assert "9999" not in json.dumps(dcat)


def test_people_read_no_window(folder: Inside) -> None:
    """Plans, runs, explanations and next steps speak of the snapshot, and their commands can be used."""
    plan = folder.kfm("diff")
    assert "the snapshot" in plan.out
    folder.kfm("run")
    listed, shown = folder.kfm("runs"), folder.kfm("explain", "levels")
    for said_ in (plan.out, listed.out, shown.out, folder.kfm("run").out):
        assert "9999" not in said_, said_
        assert "0001-01-01" not in said_, said_
    assert "the snapshot" in listed.out


def test_a_plan_of_it_is_applied_as_it_was_read(folder: Inside) -> None:
    """What is dated by its arrival is dated by the plan that binds it."""
    folder.write(
        "pipeline.py", "def publish(context):\n    context.publisher.write_file('n.csv', b'a\\n1\\n')\n"
    )
    folder.configure(
        source="{id: notes, dataset: levels, kind: files, folder: incoming, window: none, "
        "pattern: none-*, pipeline: 'pipeline.py:publish'}"
    )
    planned = folder.kfm("diff", "--plan", "plan.jsonl")
    assert planned.code == 0, planned.err
    applied = said(folder.kfm("run", "--json", "--plan", "plan.jsonl"))
    assert applied["word"] == "published", applied
    (item,) = items(folder)
    made_at = json.loads((folder.folder / "plan.jsonl").read_text().splitlines()[0])["made_at"]
    assert item["properties"]["datetime"] == made_at


def test_a_window_asked_of_it_is_refused_with_a_way_out(folder: Inside) -> None:
    """It has none; and a source that has windows has no `none`."""
    refused = folder.kfm("run", "--window", NEW)
    assert refused.code == 2
    assert "a source without windows" in refused.err
    assert "Leave the window out." in refused.err
    assert folder.kfm("run", "--window", "none").code == 0
    folder.configure()
    refused = folder.kfm("run", "--window", "none")
    assert refused.code == 2
    assert "Its source has windows" in refused.err


def test_a_pattern_with_a_window_is_refused_by_the_check(folder: Inside) -> None:
    """Nothing fills in the day where there is none."""
    folder.configure(
        source="{id: notes, dataset: levels, kind: files, folder: incoming, window: none, "
        'pattern: "{window.start:date}.csv"}'
    )
    refused = folder.kfm("config", "check")
    assert refused.code == 2
    assert "`{window.start}` in `pattern` has no value: `window` is `none`" in refused.err


def test_schedules_ask_for_it(folder: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every scheduled time asks for the one work: unchanged as long as nothing has changed; missed times of
    many days are caught up by one."""
    folder.write(
        "cron.yml",
        "version: 1\nschedules:\n"
        "  - {id: daily, source: notes, cron: '0 6 * * *', missed: {run: all, within: P7D, cap: 20}}\n",
    )
    assert folder.kfm("schedule", "run-due").code == 0
    later(monkeypatch, days=1)
    assert "published" in folder.kfm("schedule", "run-due").out
    later(monkeypatch, days=3)
    ran = folder.kfm("schedule", "run-due")
    assert ran.code == 0
    assert "published" not in ran.out
    folder.write("incoming/a.csv", table("a", 9))
    later(monkeypatch, days=1)
    assert "published" in folder.kfm("schedule", "run-due").out
    assert "9999" not in folder.kfm("schedule", "next", "daily").out
    runs = json.loads(folder.kfm("runs", "--json").out)["runs"]
    assert len(runs) == 2


# --- windows that replace each other ---------------------------------------------------


def test_an_older_window_does_not_become_the_head_without_a_word(daily: Inside) -> None:
    """It is refused, says which window is shown and which command passes it; forced, it is on record."""
    assert daily.kfm("run", "--window", NEW).code == 0
    refused = daily.kfm("run", "--window", OLD)
    assert refused.code == 3
    assert "shows 2026-11-15 00:00 … 2026-11-16 00:00 UTC, which is newer" in refused.err
    assert "--force --rationale TEXT --ticket ID" in refused.err
    assert [one["id"] for one in items(daily)] == ["notes_20261115T000000Z_20261116T000000Z"]
    forced = daily.kfm(
        "run", "--window", OLD, "--force", "--rationale", "the 15th is wrong", "--ticket", "T-1"
    )
    assert forced.code == 0, forced.err
    assert [one["id"] for one in items(daily)] == ["notes_20261114T000000Z_20261115T000000Z"]


def test_what_the_head_does_not_show_is_not_unchanged(daily: Inside) -> None:
    """After an older window was put in its place, asking for the newer one shows it again."""
    daily.kfm("run", "--window", NEW)
    daily.kfm("run", "--window", OLD, "--force", "--rationale", "a test", "--ticket", "T-1")
    again = said(daily.kfm("run", "--window", NEW, "--json"))
    assert (again["word"], again["version"]) == ("published", 3)
    assert "another window" in again["reason"]
    assert said(daily.kfm("run", "--window", NEW, "--json"))["word"] == "unchanged"


def test_a_newer_window_with_the_same_files_makes_no_version(daily: Inside) -> None:
    """The label alone makes no version; and the window counts as shown: what is older stays refused."""
    daily.write("incoming/2026-11-16.csv", (daily.folder / "incoming/2026-11-15.csv").read_text())
    assert said(daily.kfm("run", "--window", NEW, "--json"))["version"] == 1
    same = said(daily.kfm("run", "--window", "2026-11-16/P1D", "--json"))
    assert (same["word"], same["version"]) == ("unchanged", 1)
    assert said(daily.kfm("run", "--window", "2026-11-16/P1D", "--json"))["outcome"] == "noop"
    daily.write("incoming/2026-11-15.csv", table("late", 7))
    refused = daily.kfm("run", "--window", NEW)
    assert refused.code == 3
    assert "shows 2026-11-16" in refused.err


def test_a_plan_for_an_older_window_says_that_it_is_refused(daily: Inside) -> None:
    """A preview decides as the run would."""
    daily.kfm("run", "--window", NEW)
    refused = daily.kfm("diff", "--window", OLD)
    assert refused.code == 3
    assert "which is newer" in refused.err + refused.out


def test_windows_that_add_up_come_in_any_order(project: Inside) -> None:
    """Only where windows replace each other does their order matter."""
    assert project.kfm("run", "--window", NEW).code == 0
    assert project.kfm("run", "--window", OLD).code == 0


@pytest.mark.req("DAT-1")
def test_no_sentinel_is_read_by_people(folder: Inside) -> None:
    """What has no windows is called the snapshot in coverage, status, the list of what is missing, requests
    and explanations; a window that is asked of it is refused with the reason."""
    for name in ("a", "b"):
        (folder.folder / f"incoming/{name}.csv").unlink()
    folder.kfm("run", "--source", "notes")
    status = folder.kfm("status").out
    assert "the snapshot is missing" in status.splitlines()[0]
    pages = [
        status,
        folder.kfm("coverage", "levels").out,
        folder.kfm("run", "--missing").out,
        folder.kfm("run", "--missing", "--yes").err,
        folder.kfm("runs").out,
        folder.kfm("requests", "list").out,
        folder.kfm("explain", "levels").out,
    ]
    for page in pages:
        assert "0001" not in page, page
        assert "9999" not in page, page
    assert "the snapshot  M" in pages[1]
    subject = window_subject("notes", (SNAPSHOT.start_ms, SNAPSHOT.end_ms))
    assert subject == "notes, the snapshot"  # of an incident
    refused = folder.kfm("run", "--source", "notes", "--window", "P1D")
    assert refused.code == 2
    assert "a source without windows" in refused.err
    assert "Leave the window out." in refused.err
