"""A source that was renamed is the same source: its windows, items, runs and requests stay its own."""

from __future__ import annotations

import re

import pytest

from tests.acceptance.runs.conftest import Inside
from tests.acceptance.runs.test_retries import make_due
from tests.crash.project import table
from tests.published import PublishedItem, items_in

pytestmark = pytest.mark.req("DAT-5")

WINDOW = ("--window", "2026-01-01/P1D")
FAILING = 'def publish(context):\n    raise TimeoutError("no answer")\n'
FINE = """\
def publish(context):
    for one in context.inputs:
        context.publisher.write_file(one.path, one.fetched)
"""


def configure(project: Inside, name: str, more: str = "") -> None:
    project.configure(
        source=f'{{id: {name}, dataset: levels, kind: files, folder: incoming, pattern: "*.csv"{more}}}'
    )


def renamed(project: Inside, more: str = "") -> None:
    configure(project, "city", f", formerly: [city-api]{more}")


def items(project: Inside) -> list[PublishedItem]:
    return items_in(project.published / "levels" / "current")


@pytest.fixture
def moved(project: Inside) -> Inside:
    """A window was published under the first name."""
    configure(project, "city-api")
    assert project.run(*WINDOW).result["word"] == "published"
    return project


def test_without_its_former_name_it_is_another_source(moved: Inside) -> None:
    """Its paths are taken, and the way out is named."""
    configure(moved, "city")
    ended = moved.run(*WINDOW)
    assert ended.result["error"]["code"] == "KFM606", ended
    assert "`formerly`" in ended.result["error"]["remedy"]


@pytest.mark.parametrize("mode", ["merge", "replace"])
def test_its_windows_are_not_done_again_and_its_items_stay_its_own(project: Inside, mode: str) -> None:
    """The same window is unchanged; new bytes are its next revision, and replace its one item."""
    moved = project
    configure(moved, "city-api", f", mode: {mode}")
    assert moved.run(*WINDOW).result["word"] == "published"
    renamed(moved, f", mode: {mode}")
    assert moved.run(*WINDOW).result["word"] == "unchanged"
    assert len(moved.rows("SELECT * FROM runs")) == 1
    moved.write("incoming/a.csv", table("a", 7))
    again = moved.run(*WINDOW).result
    assert again["word"] == "published"
    assert [
        (row[0], row[1]) for row in moved.rows("SELECT source_id, revision FROM runs ORDER BY revision")
    ] == [
        ("city-api", 0),
        ("city-api", 1),
    ]
    assert [item.source_id for item in items(moved)] == ["city-api"]
    assert items(moved)[0].id.startswith("city-api_20260101")


def test_every_name_finds_it(moved: Inside) -> None:
    """Run, list, explain, request and preview by either name; people read the present one."""
    renamed(moved)
    for name in ("city", "city-api"):
        assert moved.run("--source", name, *WINDOW).result["word"] == "unchanged"
        (listed,) = moved.kfm("runs", "--source", name, "--json").document["runs"]
        assert listed["source_id"] == "city-api"
        assert re.search(r"\bcity\b +2026-01-01", moved.kfm("runs", "--source", name).out)
        assert listed["run_id"][:8] in moved.kfm("explain", name).out
        assert moved.kfm("requests", "list", "--source", name, "--json").document["requests"]
        assert moved.kfm("diff", "--source", name).code == 0
    unknown = moved.run("--source", "citi")
    assert "did you mean `city`" in unknown.err, unknown
    assert moved.kfm("status").out.startswith("all clear")
    shown = moved.kfm("config", "show", "--json").document["settings"]["sources"][0]
    assert (shown["id"], shown["formerly"]) == ("city", ["city-api"])


def test_what_failed_before_is_tried_again_after(project: Inside) -> None:
    """A promised attempt of the former name is made by the renamed source, and its incident ends."""
    pipeline = ', pipeline: "pipeline.py:publish", output_version: "1"'
    project.write("pipeline.py", FAILING)
    configure(project, "city-api", pipeline)
    assert project.run(*WINDOW).result["word"] == "failed"
    project.write("pipeline.py", FINE)
    renamed(project, pipeline)
    make_due(project)
    assert project.kfm("retry", "--due").code == 0
    assert project.rows("SELECT source_id, status, attempts FROM runs") == [("city-api", "success", 2)]
    assert project.kfm("status").out.startswith("all clear")


def test_renamed_twice_it_keeps_its_first_name(moved: Inside) -> None:
    """The list begins with the first id; all names find it."""
    configure(moved, "town", ", formerly: [city-api, city]")
    for name in ("town", "city", "city-api"):
        assert moved.run("--source", name, *WINDOW).result["word"] == "unchanged"


def test_schedules_and_syncs_name_it_by_any_name(moved: Inside) -> None:
    """A schedule that names the new or the former id is the schedule of the one source."""
    more = (
        "\n  - {id: all, dataset: levels, kind: sync, members: [other]}\n  - {id: other, formerly: [first], "
    )
    more += "dataset: levels, kind: files, folder: other}"
    moved.configure(
        source="{id: city, formerly: [city-api], dataset: levels, kind: files, folder: incoming}" + more
    )
    for name in ("city", "city-api"):
        moved.write("cron.yml", f"schedules:\n  - {{id: daily, source: {name}, cron: '0 3 * * *'}}\n")
        (listed,) = moved.kfm("schedule", "list", "--json").document["schedules"]
        assert listed["source_id"] == "city-api", listed
    for name in ("other", "first"):
        ended = moved.run("--source", name)
        assert "member of the sync `all`" in ended.err, ended


@pytest.mark.parametrize(
    ("sources", "problem"),
    [
        ("{id: a, formerly: [a], ", "leave it out of `formerly`"),
        ("{id: a, formerly: [b, b], ", "that name is used twice"),
        ("{id: a, formerly: [c], dataset: levels, kind: files, folder: x}\n  - {id: c, ", "used twice"),
        (
            "{id: a, formerly: [c], dataset: levels, kind: files, folder: x}\n  - {id: d, formerly: [C], ",
            "used twice",
        ),
        ("{id: a, formerly: ['no name'], ", "characters that are not allowed"),
    ],
)
def test_a_name_stands_for_one_source(project: Inside, sources: str, problem: str) -> None:
    """Now and before; what is ambiguous is refused with its line."""
    project.configure(source=f"{sources}dataset: levels, kind: files, folder: incoming}}")
    ended = project.kfm("config", "check")
    assert (ended.code, problem in ended.err, "kfm.yml:" in ended.err) == (2, True, True), ended


def test_items_of_all_its_names_are_one_slot(moved: Inside) -> None:
    """A rename without `formerly` had begun another history: declared later, both are one source's."""
    configure(moved, "city", ", path: 'b/{name}'")
    assert moved.run("--source", "city", *WINDOW).result["word"] == "published"
    assert len(items(moved)) == 2
    renamed(moved)
    moved.write("incoming/a.csv", table("a", 9))
    assert moved.run("--source", "city", *WINDOW).result["word"] == "published"
    assert [item.source_id for item in items(moved)] == ["city-api"]
