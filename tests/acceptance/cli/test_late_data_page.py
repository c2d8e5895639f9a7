"""The page about late data is true: its configuration and its commands are played, and say what it shows."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from tests.acceptance.runs.conftest import Inside

pytestmark = pytest.mark.req("DAT-2")

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "late-data.md"
STEP = re.compile(r"<!-- play(?:: (\w+) rows)? -->\n```console\n(.*?)```", re.DOTALL)
ROWS = {"": 0, "two": 2, "three": 3}


def masked(line: str) -> str:
    """Without what differs from day to day: times, ids, durations, the width of columns."""
    line = re.sub(r"\d{4}-\d\d-\d\d( \d\d:\d\d(:\d\d)?)?", "T", line)
    line = re.sub(r"\b[0-9a-f]{8}-[0-9a-f]{4}\b", "ID", line)
    line = re.sub(r"\b[\d.]+ m?s\b", "SPAN", line)
    return re.sub(r" +", " ", line).strip()


def test_the_page_is_true(tmp_path: Path) -> None:
    """Each command is run in the order of the page; every line that it shows is printed."""
    text = PAGE.read_text()
    configuration = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert configuration is not None
    project = Inside(tmp_path / "project")
    project.write("kfm.yml", configuration[1])
    os.makedirs(project.folder / "incoming")
    steps = STEP.findall(text)
    assert [rows for rows, _ in steps] == ["", "two", "three"]
    for rows, shown in steps:
        if rows:
            lines = "".join(f"{number},1.0\n" for number in range(ROWS[rows]))
            project.write("incoming/levels.csv", f"gauge,level\n{lines}")
        for command, *expected in re.findall(r"\$ kfm (.*)\n((?:(?!\$ ).*\n)*)", shown):
            ended = project.kfm(*shlex.split(command))
            printed = [masked(line) for line in (ended.out + ended.err).splitlines()]
            for line in "".join(expected).splitlines():
                assert masked(line) in printed
