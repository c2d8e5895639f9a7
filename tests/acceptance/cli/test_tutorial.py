"""The tutorials are true: every command is run, and what it prints is what the page shows."""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from kfm.config.loader import actor

PAGES = Path(__file__).resolve().parents[3] / "docs" / "tutorials"
# Dates, ids, hashes and durations are those of the reader's machine; so is the width of their columns.
_THEIRS = (
    (r"sha256:[0-9a-f]{64}", "HASH"),
    (r"auto-[0-9a-f]{16}", "PIPELINE"),
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}(-[0-9a-f]{4}-[0-9a-f]{4}(-[0-9a-f]{12})?)?\b", "RUN"),
    (r"(?<!like )\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d{3})?)?Z?", "TIME"),
    (r"sha256:[0-9a-f]{12}\b", "HASH"),
    (r"\b\d+ (h|min) \d+ (min|s)\b", "DURATION"),
    (r"\b\d+(\.\d+)? (ms|s)\b", "DURATION"),
    (r"\b[\d,]+ µ(Wh|g)\b", "COST"),
    (r" +", " "),
)
_DAY = re.compile(r"\b\d{4}-\d\d-\d\d(?!\d)")
_MIDNIGHT = re.compile(r"\b(\d{4}-\d\d-\d\d)[ T]00:00(?::00(?:\.000)?)?(?!:)(?:Z| UTC)?")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
HOME = "/home/ana"  # of the reader whose output the pages show
PLAY_SECONDS_MAX = 120


class Typed(NamedTuple):
    command: str
    shown: tuple[str, ...]


class Written(NamedTuple):
    path: str
    text: str


def steps(page: str) -> Iterator[Typed | Written]:
    """Each command of the page with the lines below it, and each file that the reader writes, in order."""
    for language, block in re.findall(r"```(console|yaml)\n(.*?)```", page, flags=re.DOTALL):
        if language == "yaml":
            name, _, text = block.partition("\n")
            yield Written(name.removeprefix("# "), text)
            continue
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            yield Typed(command, tuple(shown))


def comparable(line: str) -> str:
    for pattern, word in _THEIRS:
        line = re.sub(pattern, word, line)
    return line.rstrip()


def with_days(text: str) -> str:
    """The same with windows by their days; a calendar that goes on in the next month in one row."""
    text = re.sub(r"^  \d{4}-\d\d  (\S+)$", r"calendar \1", text, flags=re.MULTILINE)
    text = re.sub(r"^(calendar \S+)\ncalendar ", r"\1", text, flags=re.MULTILINE)
    return _MIDNIGHT.sub(r"day \1", text)


class Reader:
    """A person who follows a page at a terminal, on another day and another machine."""

    def __init__(self, folder: Path) -> None:
        self.home = folder
        self.folder = folder
        self._digest = self._run_id = ""
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        (bin_folder / "kfm").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m kfm "$@"\n')
        (bin_folder / "kfm").chmod(0o755)
        self._environ = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("KFM_", "GITHUB_", "FORCE"))
        }
        self._environ |= {
            "PATH": f"{bin_folder}:{self._environ['PATH']}",
            "XDG_CACHE_HOME": str(folder / "cache"),
        }

    def follows(self, page: str, *, days: bool = False) -> None:
        """Do what the page says, with the digests and ids of this machine, and compare; also the days."""
        for step in steps(page):
            if isinstance(step, Written):
                (self.folder / step.path).write_text(step.text, "utf-8")
            elif step.command.startswith("cd "):
                self.folder /= step.command.removeprefix("cd ")
            else:
                command = re.sub(r"explain [0-9a-f]{8}$", f"explain {self._run_id}", step.command)
                command = _DIGEST.sub(self._digest, command)
                printed = self._types(command, answers="[y/N]" in "\n".join(step.shown))
                shown = "\n".join(step.shown)
                if days:
                    printed, shown = with_days(printed), with_days(shown)
                lines = [comparable(line) for line in printed.splitlines()]
                assert lines == [comparable(line) for line in shown.splitlines()], command

    def _types(self, command: str, *, answers: bool) -> str:
        """What the terminal shows of a command, and of the answer to its question."""
        ours, theirs = pty.openpty()
        try:
            if answers:
                os.write(ours, b"y\n")
            done = subprocess.run(
                ["sh", "-c", command],
                cwd=self.folder,
                env=self._environ,
                stdin=theirs,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=60,
                check=False,
            )
        finally:
            os.close(ours)
            os.close(theirs)
        printed = re.sub(rf"\b(by |from |)({re.escape(actor())})(?=[ :,])", r"\1ana", done.stdout)
        found = re.findall(r"\brun ([0-9a-f]{8})-", printed)
        self._run_id = found[-1] if found else self._run_id
        digests = _DIGEST.findall(printed)
        self._digest = digests[-1] if digests else self._digest
        # A terminal shows a bar here, and takes it away again.
        printed = re.sub(r"^fetch: .*\n", "", printed, flags=re.MULTILINE)
        return printed.replace("[y/N]: ", "[y/N]: y\n").replace(str(self.home), HOME)


def moved(page: str, today: date) -> str:
    """The page as if it had been written today: every day in it as many days later."""
    written = re.search(r"today is (\d{4}-\d\d-\d\d)", page)
    assert written, "the page names its day"
    shift = today - date.fromisoformat(written[1])
    return _DAY.sub(lambda day: (date.fromisoformat(day[0]) + shift).isoformat(), page)


@pytest.mark.req("CLI-1")
def test_the_tutorial(tmp_path: Path) -> None:
    """A reader who follows the page sees what it shows."""
    Reader(tmp_path).follows((PAGES / "first-update.md").read_text("utf-8"))


@pytest.mark.req("CLI-1", "DAT-1", "DAT-3", "DAT-4", "DAT-5")
def test_the_second_part(tmp_path: Path) -> None:
    """Late, wrong, gone: on whatever day a reader follows the page, with its days moved, it is true."""
    left = 86_400 - time.time() % 86_400
    if left < PLAY_SECONDS_MAX:  # the days of the page are those of the day on which it is played
        time.sleep(left + 1)
    today = datetime.now(UTC).date()
    page = (PAGES / "late-wrong-gone.md").read_text("utf-8")
    Reader(tmp_path).follows(moved(page, today), days=True)
