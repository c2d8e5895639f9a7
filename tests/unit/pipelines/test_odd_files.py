"""Inputs and outputs that are no files: said as such, by node and name, and no pass waits or dies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import kfm

PLACES = {
    "a folder": ("folder", "is a folder"),
    "a pipe": ("pipe", "no regular file"),
    "links in a circle": ("circle", "no file is called circle"),
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.csv").write_text("1")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle").symlink_to("circle")
    return tmp_path


@pytest.mark.req("RS-6")
@pytest.mark.parametrize("what", PLACES)
def test_an_input_that_is_no_file_fails_its_node_only(place: Path, what: str) -> None:
    """It fails closed and names node and field; what does not depend on it runs."""
    path, said = PLACES[what]
    flow = kfm.Pipeline("odd")
    flow.node("odd.reads", inputs=[path])(lambda: 1)
    flow.node("odd.beside")(lambda: 2)
    report = flow.run(keep_going=True)
    assert report.nodes["odd.beside"].ran
    error = report.nodes["odd.reads"].error
    assert error is not None
    assert "odd.reads: inputs[0]" in error.detail
    assert said in error.detail


def test_patterns_may_begin_at_the_root(place: Path) -> None:
    """A pattern with a full path finds what it matches, as a full path does."""
    flow = kfm.Pipeline("root")
    flow.node("root.reads", inputs=[f"{place}/folder/*.csv"])(lambda: 1)
    assert flow.run().state == "success"
    assert not flow.run().nodes["root.reads"].ran
    (place / "folder" / "a.csv").write_text("22")
    assert flow.run().nodes["root.reads"].ran


def test_an_output_that_became_a_folder_is_made_again(place: Path) -> None:
    """What stands where an output was is no result; an output that is declared as a folder is refused."""
    flow = kfm.Pipeline("out")

    @flow.node("out.made", outputs=["out.txt"])
    def made() -> None:
        if os.path.isdir("out.txt"):
            os.rmdir("out.txt")
        Path("out.txt").write_text("made")

    assert flow.run().state == "success"
    (place / "out.txt").unlink()
    (place / "out.txt").mkdir()
    assert flow.run().nodes["out.made"].reason == "out.txt can't be read"
    flow.node("out.folder", outputs=["folder"])(lambda: None)
    error = flow.run().nodes["out.folder"].error
    assert error is not None
    assert "out.folder: its output folder is a folder" in error.detail
