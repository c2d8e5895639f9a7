"""`kfm graph --datasets` draws sources, datasets and what is made of what."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.datasets.derived_project import Derived, daily

pytestmark = pytest.mark.req("DAT-7")


@pytest.fixture
def project(tmp_path: Path) -> Derived:
    made = Derived(tmp_path / "project")
    made.prepare()
    made.configure_derived(deeper=True)
    return made


def test_as_text(project: Derived) -> None:
    """Layer by layer, each after what it is made of, with versions, and what is stale."""
    project.publish_inputs()
    project.run("exposure", daily(1))
    project.change(1)
    project.run("readings", daily(1))
    drawn = project.kfm("graph", "--datasets")
    assert drawn.code == 0, drawn.err
    assert [" ".join(line.split()) for line in drawn.out.splitlines()] == [
        "datasets of environment test",
        "3 datasets, 2 derived, 2 sources, 1 stale",
        "",
        "layer 1",
        "* source:readings source files",
        "* source:zones source files",
        "layer 2",
        "# readings dataset version 4 ← source:readings",
        "# zones dataset version 1 ← source:zones",
        "layer 3",
        "> source:exposure derived readings by window, zones by current ← readings, zones",
        "layer 4",
        "! exposure stale version 1, 1 window stale ← source:exposure",
        "layer 5",
        "> source:monthly derived exposure by window ← exposure",
        "layer 6",
        "# monthly dataset no version ← source:monthly",
    ]


def test_for_programs_and_as_a_picture(project: Derived, valid: Callable[[str, Any], None]) -> None:
    """The document keeps to its schema and the picture names what the text does."""
    document = json.loads(project.kfm("graph", "--datasets", "--json").out)
    valid("cli-graph-datasets", document)
    reads = {(one["kind"], one["node"]): one["reads"] for one in document["nodes"]}
    assert reads["source", "exposure"] == [
        {"kind": "dataset", "node": "readings"},
        {"kind": "dataset", "node": "zones"},
    ]
    assert project.kfm("graph", "--datasets", "--svg", "datasets.svg").code == 0
    svg = (project.folder / "datasets.svg").read_text()
    assert "source:exposure" in svg
    assert "no version" in svg
    assert "2 sources" in svg
    assert 'marker-end="url(#arrow)"' in svg
    printed = project.kfm("graph", "--datasets", "--svg", "-")
    assert printed.out == svg
    assert not (project.folder / "-").exists()
    assert project.kfm("graph", "--datasets", "--svg", "-", "--json").code == 2


def test_of_another_folder(project: Derived, tmp_path: Path) -> None:
    """--directory names the folder whose configuration is drawn; one without is an error."""
    elsewhere = Derived(tmp_path / "elsewhere")
    elsewhere.folder.mkdir(exist_ok=True)
    assert elsewhere.kfm("graph", "--datasets", "--directory", "/nope").code == 2
    drawn = elsewhere.kfm("graph", "--datasets", "--directory", str(project.folder))
    assert (drawn.code, drawn.out) == (0, project.kfm("graph", "--datasets").out)


def test_a_run_or_the_datasets(project: Derived) -> None:
    """One of the two is asked for."""
    assert project.kfm("graph").code == 2
    both = project.kfm("graph", "last", "--datasets")
    assert (both.code, "`last` names a pipeline run" in both.err) == (2, True)
