"""A source gets another window length by a plan: readers see no hole and nothing twice, and new windows
count."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.acceptance.runs.conftest import Inside
from tests.crash.project import Ended, table
from tests.published import items_in

pytestmark = pytest.mark.req("DAT-5")

WHY = ("--rationale", "Upstream publishes by week now.")
MONDAY = "2026-01-05"
WEEK = tuple(f"2026-01-{day:02}" for day in range(5, 12))
Valid = Callable[[str, Any], None]


def configure(project: Inside, window: str, more: str = "") -> None:
    fixed = 'id: notes, dataset: levels, kind: files, folder: incoming, pattern: "*.csv"'
    project.configure(source=f"{{{fixed}, window: {window}{more}}}")


def run(project: Inside, window: str, *more: str) -> Ended:
    return project.kfm("run", "--json", "--window", window, *more)


def rewindow(project: Inside, length: str, *more: str) -> Ended:
    return project.kfm("source", "rewindow", "notes", "--window", length, "--json", *more)


def spans(project: Inside) -> list[tuple[str, str]]:
    """The windows that readers see."""
    days = 86_400_000
    start = 1_767_571_200_000  # 2026-01-05
    items = items_in(project.published / "levels/current")
    return sorted(((item.start_ms - start) // days, (item.end_ms - start) // days) for item in items)


@pytest.fixture
def days(project: Inside) -> Inside:
    """Six days of a week, and all days of the one before."""
    configure(project, "P1D")
    for text in (*(f"2025-12-{day}" for day in (29, 30, 31)), *(f"2026-01-0{day}" for day in range(1, 5))):
        assert run(project, f"{text}/P1D").result["word"] == "published"
    for text in WEEK[:6]:
        assert run(project, f"{text}/P1D").result["word"] == "published"
    return project


def test_an_edit_alone_is_refused_with_the_command(days: Inside) -> None:
    """A length that the source did not get by a plan begins no run, and `config check` names the way out."""
    configure(days, "P1W")
    ended = run(days, f"{MONDAY}/P1W")
    assert (ended.code, ended.result["error"]["code"]) == (3, "KFM301"), ended
    assert "kfm source rewindow notes --window P1W" in ended.result["error"]["remedy"]
    forced = run(days, f"{MONDAY}/P1W", "--force", "--rationale", "please", "--ticket", "T-1")
    assert forced.code == 3
    checked = days.kfm("config", "check", "--json")
    assert checked.code == 2
    assert "kfm source rewindow notes --window P1W" in checked.document["remedy"]
    assert len(spans(days)) == 13


def test_the_command_of_a_refusal_is_the_way_out(days: Inside) -> None:
    """What the refusal names first only shows, and says so; with what it names then the length is changed."""
    configure(days, "P1W")
    remedy = run(days, f"{MONDAY}/P1W").result["error"]["remedy"]
    assert remedy == days.kfm("config", "check", "--json").document["remedy"]
    shows, applies, _ = remedy.split("`")[1::2]
    assert days.kfm(*shows.split()[1:]).code == 0
    assert not days.rows("SELECT * FROM dataset_changes")
    done = days.kfm(*f"{shows} {applies}".replace("TEXT", "agreed").split()[1:])
    assert done.code == 0, done
    assert done.out.splitlines()[0] == "rewindowed  notes of levels: P1D → P1W"
    assert run(days, f"{MONDAY}/P1W").result["word"] == "published"


@pytest.mark.parametrize("edit_first", [True, False])
def test_days_become_weeks(days: Inside, valid: Valid, edit_first: bool) -> None:
    """A week that its days cover stays; one that they do not is asked for, and takes their place in one
    version."""
    if edit_first:
        configure(days, "P1W")
    shown = rewindow(days, "P1W")
    valid("cli-source-rewindow", shown.document)
    plan = shown.document["plan"]["rewindow"]
    assert (shown.code, plan["old"], plan["new"], plan["lasting"]) == (0, "P1D", "P1W", 13)
    assert [len(one["replaces"]) for one in plan["asked_again"]] == [6]
    assert len(plan["covered"]) == 1
    digest = shown.document["plan"]["digest"]
    done = rewindow(days, "P1W", "--digest", digest, *WHY)
    valid("cli-source-rewindow", done.document)
    assert (done.code, done.document["applied"]) == (0, True), done
    assert len(spans(days)) == 13, "nothing changes for readers yet"
    configure(days, "P1W")
    assert days.kfm("config", "check").code == 0
    before = json.loads((days.published / "levels/current/manifest.json").read_bytes())
    week = run(days, f"{MONDAY}/P1W")
    assert week.result["word"] == "published", week
    assert spans(days) == [*((day, day + 1) for day in range(-7, 0)), (0, 7)]
    assert before["items"]["count"] == 13
    assert days.kfm("audit", "verify", "--json").code == 0
    entries = days.kfm("audit", "list", "--json", "--kind", "source-rewindowed").document["entries"]
    assert [one["rationale"] for one in entries] == [WHY[1]]


def test_new_windows_count(days: Inside) -> None:
    """A covered week is published, a week with a missing day is missing, and days count no more."""
    configure(days, "P1D", ", expect: {from: 2025-12-29, within: P1D}")
    before = days.kfm("coverage", "levels", "--json").document["windows"]
    assert len(before) > 13
    assert rewindow(days, "P1W", "--yes", *WHY).code == 0
    configure(days, "P1W", ", expect: {from: 2025-12-29, within: P1D}")
    found = days.kfm("coverage", "levels", "--json", "--to", "2026-01-12").document["windows"]
    assert [(one["window_start"][:10], one["state"]) for one in found] == [
        ("2025-12-29", "published"),
        (MONDAY, "missing"),
    ]
    missing = days.kfm("run", "--missing", "levels", "--to", "2026-01-12", "--yes", "--json")
    assert missing.code == 0, missing
    assert spans(days)[-1] == (0, 7)
    again = days.kfm("coverage", "levels", "--json", "--to", "2026-01-12").document["windows"]
    assert [one["state"] for one in again] == ["published", "published"]


def test_weeks_become_days(project: Inside) -> None:
    """A published week covers its days: asking for one of them is refused, and the next day stands beside
    it."""
    configure(project, "P1W")
    assert run(project, f"{MONDAY}/P1W").result["word"] == "published"
    done = rewindow(project, "P1D", "--yes", *WHY)
    assert done.code == 0, done
    assert len(done.document["plan"]["rewindow"]["covered"]) == 7
    configure(project, "P1D")
    inside = run(project, f"{WEEK[2]}/P1D")
    assert (inside.code, inside.result["error"]["code"]) == (3, "KFM301"), inside
    assert "Ask for windows of P1D beside it" in inside.result["error"]["remedy"]
    assert run(project, "2026-01-12/P1D").result["word"] == "published"
    assert spans(project) == [(0, 7), (7, 8)]
    stale = run(project, "2026-01-12/P1W")
    assert stale.code == 3, "a window of the earlier length takes no day's place"
    assert spans(project) == [(0, 7), (7, 8)]
    covered = project.kfm("coverage", "levels", "--json").document["windows"]
    assert [(one["window_start"][:10], one["state"]) for one in covered if one["state"] != "refused"] == [
        (WEEK[2], "published"),
        ("2026-01-12", "published"),
    ]


def test_weeks_and_months_go_by_days(project: Inside) -> None:
    """A week across the edge of a month that would have to be asked for is named, with the way round."""
    configure(project, "P1W")
    assert run(project, "2026-01-26/P1W").result["word"] == "published"
    ended = rewindow(project, "P1M", "--yes", *WHY)
    assert (ended.code, ended.document["code"]) == (2, "KFM200"), ended
    assert "P1D" in ended.document["remedy"]
    assert rewindow(project, "P1D", "--yes", *WHY).code == 0
    configure(project, "P1D")
    for day in range(1, 26):
        assert run(project, f"2026-01-{day:02}/P1D").result["word"] == "published"
    for day in range(2, 29):
        assert run(project, f"2026-02-{day:02}/P1D").result["word"] == "published"
    done = rewindow(project, "P1M", "--yes", *WHY)
    assert done.code == 0, done
    assert len(done.document["plan"]["rewindow"]["covered"]) == 2
    configure(project, "P1M")
    assert run(project, "2026-03-01/P1M").result["word"] == "published"
    assert len(spans(project)) == 1 + 25 + 27 + 1


def test_what_lies_before_the_first_expected_day_opens_no_month(project: Inside) -> None:
    """Weeks that begin before their month become months by way of days, though the days of that month before
    `expect.from` never come."""
    expect = ", expect: {from: 2026-01-26, within: P1D}"
    configure(project, "P1W", expect)
    assert run(project, "2026-01-26/P1W").result["word"] == "published"
    assert rewindow(project, "P1M").code == 2, "February is not covered"
    assert rewindow(project, "P1D", "--yes", *WHY).code == 0
    configure(project, "P1D", expect)
    assert project.kfm("run", "--missing", "levels", "--to", "2026-03-01", "--yes").code == 0
    done = rewindow(project, "P1M", "--yes", *WHY)
    assert done.code == 0, done
    plan = done.document["plan"]["rewindow"]
    assert [one["start_ms"] for one in plan["covered"]] == [1_767_225_600_000, 1_769_904_000_000]
    configure(project, "P1M", expect)
    found = project.kfm("coverage", "levels", "--json", "--to", "2026-03-01").document["windows"]
    assert [(one["window_start"][:10], one["state"]) for one in found] == [
        ("2026-01-01", "published"),
        ("2026-02-01", "published"),
    ]


def test_a_name_that_is_shorter_than_the_new_windows_is_told(project: Inside) -> None:
    """A dated pattern finds one day of a week: the plan says so, and nothing of it where the name fits."""
    fixed = "id: notes, dataset: levels, kind: files, folder: incoming, window: P1D"
    project.configure(source=f'{{{fixed}, pattern: "{{window.start:date}}.csv"}}')
    project.write("incoming/2026-01-05.csv", table("a", 3))
    assert run(project, f"{MONDAY}/P1D").result["word"] == "published"
    told = "`pattern` of notes may find but a part of a window of P1W"
    assert told in project.kfm("source", "rewindow", "notes", "--window", "P1W").err
    assert "may find" not in project.kfm("source", "rewindow", "notes", "--window", "PT6H").err
    project.configure(source=f'{{{fixed}, pattern: "{{window.start:%Y-%m}}*.csv"}}')
    assert "may find" not in project.kfm("source", "rewindow", "notes", "--window", "P1W").err
    assert "may find" in project.kfm("source", "rewindow", "notes", "--window", "P1Y").err


@pytest.mark.parametrize(
    ("source", "length"),
    [
        ("notes", "P1D"),
        ("notes", "none"),
        ("notes", "a week"),
        ("notes", "PT7H"),
        ("notes", "2026-01-01/P1D"),
        ("nothing", "P1W"),
        ("notes", ""),
        ("notes", "P0D"),
        ("notes", "P999999D"),
        ("notes", "P999999999D"),
    ],
)
def test_nonsense_is_refused_with_a_way_out(days: Inside, source: str, length: str) -> None:
    """What is no length, no source, or no change, is said so; nothing is written."""
    ended = days.kfm("source", "rewindow", source, "--window", length, "--yes", "--json", *WHY)
    assert ended.code == 2, ended
    assert ended.document["message"]
    assert ended.document["remedy"]
    assert not days.rows("SELECT * FROM dataset_changes")


def test_a_reason_and_the_same_plan_are_needed(days: Inside) -> None:
    """Without a rationale nothing is applied, nor when a window came since."""
    digest = rewindow(days, "P1W").document["plan"]["digest"]
    silent = rewindow(days, "P1W", "--digest", digest)
    assert (silent.code, silent.document["code"]) == (3, "KFM304")
    assert run(days, f"{WEEK[6]}/P1D").result["word"] == "published"
    drifted = rewindow(days, "P1W", "--digest", digest, *WHY)
    assert (drifted.code, drifted.document["code"]) == (3, "KFM306")
    assert not days.rows("SELECT * FROM dataset_changes")


def test_where_windows_replace_each_other_no_plan_is_needed(project: Inside) -> None:
    """The length is changed in the configuration alone."""
    configure(project, "P1D", ", mode: replace")
    assert run(project, f"{MONDAY}/P1D").result["word"] == "published"
    told = rewindow(project, "P1W", "--yes", *WHY)
    assert told.code == 2
    assert "window: P1W" in told.document["remedy"]
    configure(project, "P1W", ", mode: replace")
    project.write("incoming/a.csv", table("a", 9))
    assert run(project, f"{MONDAY}/P1W").result["word"] == "published"


def test_a_rollback_and_a_new_window_go_together(days: Inside) -> None:
    """After a rollback the days are back, the week is missing, and asked for it takes their place again."""
    assert rewindow(days, "P1W", "--yes", *WHY).code == 0
    configure(days, "P1W")
    assert run(days, f"{MONDAY}/P1W").result["word"] == "published"
    assert days.kfm("rollback", "levels", "--to", "13", "--yes", *WHY).code == 0
    assert len(spans(days)) == 13
    assert days.kfm("switch", "set", "running", "--dataset", "levels", *WHY).code == 0
    assert run(days, f"{MONDAY}/P1W").result["word"] == "published"
    assert spans(days)[-1] == (0, 7)
    assert len(spans(days)) == 8
