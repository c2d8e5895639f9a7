"""What is under way: the steps of a run with the time of each, on a terminal; plain lines elsewhere."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from kfm.cli.process import Stream
from kfm.cli.progress import LiveLine, ProgressLines, StepLines, following
from tests.stand_ins import FakeClock

CONFIG = """\
version: 1
environment: test
datasets:
  - {id: levels, rights: {license: CC0-1.0, care: {label: Public}}}
sources:
  - id: daily
    dataset: levels
    kind: files
    folder: incoming
    window: P1D
    pipeline: "loud.py:publish"
publish:
  - {kind: local, path: published}
"""
LOUD = """\
import threading


def publish(context):
    threading.Event().wait(0.5)
    print("from the pipeline")
    raise ValueError("no such column")
"""


def test_each_step_has_its_time() -> None:
    """The steps of a run are one line, with what each took; the next run has its own."""
    clock, stream = FakeClock(), io.StringIO()
    steps = StepLines(clock, stream)
    with following(steps) as over:
        for name, took_ms in (("fetch", 1_200), ("transform", 65_000)):
            steps.phase(name)
            steps.phase(name, 10)  # again, by what works in it
            clock.sleep_ms(took_ms)
        over()
        over()  # nothing since: nothing to tell
        steps.phase("fetch")
        steps.advance(2048, "a.csv")
        clock.sleep_ms(5)
        over()
    told = [line.split("\x1b[2K")[-1] for line in stream.getvalue().splitlines()]
    assert told == ["  fetch 1.2 s · transform 1 min 5 s", "  fetch 5 ms"]


def test_what_else_is_written_takes_the_place_of_the_live_line() -> None:
    """A message begins at the start of its line, whatever was drawn there."""
    below = io.StringIO()
    stream = Stream(below)
    line = LiveLine(lambda: "  fetch 3 s …", stream)
    with line.drawn():
        line.draw()
        stream.write("a warning\n")
        stream.write("and another\n")
    shown = below.getvalue()
    assert "fetch 3 s …\r\x1b[2Ka warning\nand another\n" in shown
    assert shown.rpartition("\n")[2].rpartition("\x1b[2K")[2] == ""
    stream.write("later\n")
    assert below.getvalue().endswith("later\n")


def test_elsewhere_a_line_tells_what_was_fetched() -> None:
    """In a log a step without objects leaves no line."""
    stream = io.StringIO()
    progress = ProgressLines(stream)
    with following(progress) as over:
        progress.phase("fetch")
        progress.phase("fetch", 10)
        progress.advance(10, "a.csv")
        progress.phase("transform")
        over()
    assert stream.getvalue() == "fetch: 1 object, 10 B\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "a.csv").write_text("day,flow\n1,2\n")
    (tmp_path / "kfm.yml").write_text(CONFIG)
    (tmp_path / "loud.py").write_text(LOUD)
    return tmp_path


def on_terminal(folder: Path, *arguments: str) -> tuple[str, str]:
    """What the terminal gets as standard error, and what a pipe gets as standard output."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    dropped = ("COLUMNS", "LINES", "PAGER", "KFM_SERVER", "KFM_CONFIG")
    options: dict[str, Any] = {
        "env": {name: value for name, value in os.environ.items() if name not in dropped} | {"TERM": "xterm"},
        "cwd": folder,
    }
    command = [sys.executable, "-m", "kfm", *arguments]
    process = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, **options)
    os.close(theirs)
    drawn = b""
    try:
        while found := os.read(ours, 4096):
            drawn += found
    except OSError:  # it has ended, and nothing is left
        pass
    finally:
        os.close(ours)
    out, _ = process.communicate(timeout=60)
    return drawn.decode(), out.decode()


def test_a_run_on_a_terminal(project: Path) -> None:
    """While a pipeline works, a line says at which step it is and for how long; with --json nothing does."""
    drawn, out = on_terminal(project, "run")
    assert out.startswith("failed")
    live = [part for part in drawn.split("\r\x1b[2K") if part.endswith(" …")]
    assert any(part.startswith("  fetch ") and " · transform " in part for part in live), drawn
    last = next(line for line in drawn.splitlines() if line.endswith("s") and "transform" in line)
    assert last.split("\x1b[2K")[-1].startswith("  fetch ")
    assert "\r\x1b[2Kfrom the pipeline" in drawn
    quiet, document = on_terminal(project, "run", "--json")
    assert document.startswith("{")
    assert "transform" not in quiet.replace("loud.py", "")
