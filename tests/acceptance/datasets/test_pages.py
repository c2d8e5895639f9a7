"""The pages about derived datasets and folders without windows are true: what they show happens."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.cli.test_tutorial import comparable

DOCS = Path(__file__).resolve().parents[3] / "docs" / "how-to"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param("make-a-dataset-from-datasets", marks=pytest.mark.req("DAT-7")),
        pytest.param("use-a-folder-without-windows", marks=pytest.mark.req("DAT-8")),
    ],
)
def test_the_page_is_true(page: str, tmp_path: Path) -> None:
    """A reader who writes the files and types the commands sees what the page shows."""
    text = (DOCS / f"{page}.md").read_text("utf-8")
    bin_folder, folder = tmp_path / "bin", tmp_path / "work"
    bin_folder.mkdir()
    folder.mkdir()
    (bin_folder / "kfm").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m kfm "$@"\n')
    (bin_folder / "kfm").chmod(0o755)
    for name, content in re.findall(r"```(?:yaml|python)\n# (\S+)\n(.*?)```", text, flags=re.DOTALL):
        (folder / name).write_text(content)
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("KFM_", "GITHUB_", "FORCE"))
    }
    environ |= {"PATH": f"{bin_folder}:{environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for block in re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.rstrip("\n").split("\n")
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=folder,
                env=environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=60,
                check=False,
            )
            found, expected = (
                [comparable(line) for line in done.stdout.splitlines()],
                [*map(comparable, shown)],
            )
            if "run-due" in command:  # what came within the same moments is worked off in any order
                found, expected = sorted(found), sorted(expected)
            assert found == expected, command
