"""What `kfm project` and the next run do with targets: gates are asked, damage is repaired."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.acceptance.runs.conftest import Inside
from tests.crash.project import CONTRACT, Ended, table

BLOCKED = '{license: CC0-1.0, care: {label: "Not to be shared", level: blocked}}'
REVIEW = '{license: CC0-1.0, care: {label: "Ask", level: review}}'
REASONS = ("--rationale", "the flood is now", "--ticket", "OPS-7")


@pytest.fixture
def project(tmp_path: Path) -> Inside:
    made = Inside(tmp_path / "project")
    made.configure()
    made.write("contract.odcs.yaml", CONTRACT)
    made.write("incoming/a.csv", table("a", 3))
    return made


def day(project: Inside, number: int) -> Ended:
    return project.kfm("run", "--json", "--window", f"2026-01-0{number}/P1D")


def promoted_not_shown(project: Inside, *arguments: str) -> None:
    """A promotion whose target could not be written."""
    project.write("published", "a file where a folder should be")
    assert project.run(*arguments).code == 4
    project.published.unlink()


def codes(ended: Ended) -> list[str | None]:
    return [row["error"] and row["error"]["code"] for row in ended.document["projections"]]


@pytest.mark.req("TRG-4")
def test_a_new_state_does_not_take_over_what_is_published(project: Inside) -> None:
    """Published windows outlive a lost state: later runs are told so, and replace nothing."""
    for number in (1, 2):
        assert day(project, number).code == 0
    before = project.current()
    shutil.rmtree(project.state)
    for number in (3, 4, 5):
        ended = day(project, number)
        assert ended.code == 4, ended
        (target,) = ended.result["projections"]
        assert target["error"]["code"] == "KFM406"
        assert "remove its `current`" in target["error"]["remedy"]
        assert project.current() == before
    (project.published / "levels/current").unlink()
    assert project.kfm("project").code == 0
    assert project.current()


@pytest.mark.req("TRG-4")
@pytest.mark.parametrize("command", ["project", "run"])
@pytest.mark.parametrize("how", ["gone", "altered", "whole tree"])
def test_what_fell_is_shown_again(project: Inside, command: str, how: str) -> None:
    """A damaged version is repaired by `kfm project` and by the next run, though nothing is new."""
    project.run()
    shown = project.current()
    version = (project.published / "levels/current").resolve()
    if how == "gone":
        shutil.rmtree(version)
    elif how == "altered":
        (version / "manifest.json").write_text("{}")
    else:
        shutil.rmtree(project.published)
    ended = project.run() if command == "run" else project.kfm("project", "--json")
    assert ended.code == 0, ended
    assert project.current() == shown


@pytest.mark.req("GOV-1")
def test_nothing_is_shown_while_a_switch_says_stopped(project: Inside) -> None:
    """What was promoted before the stop stays unseen until the stop is lifted; a pause lets it pass."""
    promoted_not_shown(project)
    project.kfm("switch", "set", "stopped", "--all", "--rationale", "storm")
    ended = project.kfm("project", "--json")
    assert codes(ended) == ["KFM307"], ended
    assert ended.code != 0
    assert not project.published.exists()
    project.kfm("switch", "set", "paused", "--all", "--rationale", "calmer")
    assert codes(project.kfm("project", "--json")) == [None]
    assert project.current()


@pytest.mark.req("GOV-1", "UPD-9")
def test_nothing_is_shown_that_the_policies_refuse_now(project: Inside) -> None:
    """A dataset that was blocked after its promotion is not shown."""
    promoted_not_shown(project)
    project.configure(rights=BLOCKED)
    assert codes(project.kfm("project", "--json")) == ["KFM301"]
    assert not project.published.exists()
    project.configure()
    assert codes(project.kfm("project", "--json")) == [None]


@pytest.mark.req("UPD-9")
def test_the_reasons_of_a_promotion_count_when_it_is_shown(project: Inside) -> None:
    """What needed a rationale and a ticket is shown later without giving them again."""
    project.configure(rights=REVIEW)
    promoted_not_shown(project, *REASONS)
    assert codes(project.kfm("project", "--json")) == [None]
    assert project.current()


def test_what_is_not_configured_any_more_is_not_shown(project: Inside) -> None:
    """The report says so; once it shows its head, a dataset that left causes no further trouble."""
    promoted_not_shown(project)
    text = (project.folder / "kfm.yml").read_text()
    project.write("kfm.yml", text.replace("levels", "heights"))
    ended = project.kfm("project", "--json")
    assert codes(ended) == ["KFM201"], ended
    assert "not configured" in ended.document["projections"][0]["error"]["message"]
    assert not project.published.exists()
    project.write("kfm.yml", text)
    assert codes(project.kfm("project", "--json")) == [None]
    project.write("kfm.yml", text.replace("levels", "heights"))
    shutil.rmtree(project.published)
    assert project.kfm("project", "--json").code == 0


@pytest.mark.req("TRG-4")
def test_the_way_back_of_a_lost_object_works(project: Inside) -> None:
    """The command that the error names brings the object and the tree back."""
    promoted_not_shown(project)
    shutil.rmtree(project.state / "objects/sha256")
    ended = project.kfm("project", "--json")
    assert codes(ended) == ["KFM405"]
    error = ended.document["projections"][0]["error"]
    assert "levels" in error["message"]
    words = error["remedy"].partition("`kfm run ")[2].partition("`")[0]
    again = project.kfm("run", "--json", *words.replace("TEXT", "lost").replace(" ID", " OPS-1").split())
    assert again.code == 0, again
    assert project.current()
