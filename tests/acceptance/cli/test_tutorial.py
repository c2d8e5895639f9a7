"""The tutorial is true: every command is run, and what it prints is what the page shows."""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kfm.config.loader import actor

PAGE = Path(__file__).resolve().parents[3] / "docs" / "tutorials" / "first-update.md"
# Dates, ids, hashes and durations are those of the reader's machine; so is the width of their columns.
_THEIRS = (
    (r"sha256:[0-9a-f]{64}", "HASH"),
    (r"auto-[0-9a-f]{16}", "PIPELINE"),
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}(-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})?\b", "RUN"),
    (r"(?<!like )\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?Z?", "TIME"),
    (r"sha256:[0-9a-f]{12}\b", "HASH"),
    (r"\b\d+(\.\d+)? (ms|s)\b", "DURATION"),
    (r"\b[\d,]+ µ(Wh|g)\b", "COST"),
    (r" +", " "),
)


class Typed(NamedTuple):
    command: str
    shown: tuple[str, ...]


def typed() -> Iterator[Typed]:
    """Each command of the page with the lines below it."""
    for block in re.findall(r"```console\n(.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            yield Typed(command, tuple(shown))


def comparable(line: str) -> str:
    for pattern, word in _THEIRS:
        line = re.sub(pattern, word, line)
    return line.rstrip()


@pytest.fixture
def terminal() -> Iterator[int]:
    """The readers' end of a terminal: they are persons."""
    ours, theirs = pty.openpty()
    yield theirs
    os.close(ours)
    os.close(theirs)


@pytest.mark.req("CLI-1")
def test_the_tutorial(tmp_path: Path, terminal: int) -> None:
    """A reader who follows the page sees what it shows."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "kfm").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m kfm "$@"\n')
    (bin_folder / "kfm").chmod(0o755)
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("KFM_", "GITHUB_", "FORCE"))
    }
    environ |= {"PATH": f"{bin_folder}:{environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    folder, run_id = tmp_path, ""
    for command, shown in typed():
        if command.startswith("cd "):
            folder = folder / command.removeprefix("cd ")
            continue
        ran = re.sub(r"explain [0-9a-f]{8}$", f"explain {run_id}", command)
        done = subprocess.run(
            ["sh", "-c", ran],
            cwd=folder,
            env=environ,
            stdin=terminal,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        printed = re.sub(rf"\b(by |from |)({re.escape(actor())})(?=[ :,])", r"\1ana", done.stdout)
        # A terminal shows a bar here, and takes it away again.
        lines = [line for line in printed.splitlines() if not line.startswith("fetch: ")]
        assert [comparable(line) for line in lines] == [comparable(line) for line in shown], ran
        found = re.findall(r"\brun ([0-9a-f]{8})-", printed)
        run_id = found[-1] if found else run_id
