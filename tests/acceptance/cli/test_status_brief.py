"""`kfm status` on a terminal: one screen, causes first, again every few seconds."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfm.cli.status_brief import CLEAR, LINES_MAX, brief, coloured, watch
from tests.acceptance.cli.conftest import Called
from tests.acceptance.cli.fakes import DAY_MS, NOW_MS, PROMOTION, FakeApp, make_run, make_switch

Kfm = Callable[..., Called]
Valid = Callable[[str, Any], None]
STYLE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Impatient:
    """A clock at which a person presses Ctrl-C after some waits."""

    def __init__(self, waits: int) -> None:
        self.waits, self.slept = waits, [0]

    def now_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> int:
        return NOW_MS

    def sleep_ms(self, delay_ms: int) -> None:
        self.slept.append(delay_ms)
        if len(self.slept) > self.waits:
            raise KeyboardInterrupt


def on_terminal(*arguments: str) -> str:
    """What a terminal of 80 columns and 24 lines gets."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-m", "kfm", "status", *arguments]
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "PAGER")}
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=kept | {"TERM": "xterm"}
    )
    os.close(theirs)
    said = b""
    try:
        while found := os.read(ours, 4096):
            said += found
    except OSError:  # it has ended, and nothing is left
        pass
    finally:
        os.close(ours)
    assert process.wait(60) == 0, said.decode()
    return said.decode().replace("\r\n", "\n")


def failing(count: int) -> list[Any]:
    return [
        make_run(
            run_id=f"run-{n}",
            window_start_ms=-n * DAY_MS,
            window_end_ms=DAY_MS - n * DAY_MS,
            start_time_ms=NOW_MS - n,
            status="failed",
            error_code=f"KFM{400 + n}",
            error_message="no route to host, " * 20,
        )
        for n in range(count)
    ]


def rows(lines: list[str], width: int = 80) -> int:
    return sum(max(-(-len(line) // width), 1) for line in lines)


def documents(kfm: Kfm, valid: Valid) -> dict[str, Any]:
    found: dict[str, Any] = kfm("status", "--json").document
    valid("status", found)
    return found


def test_a_terminal_gets_one_screen(project: Path) -> None:
    """How things are, and the command; coloured by nothing but words; --all lists everything."""
    shown = STYLE.sub("", on_terminal()).splitlines()
    assert shown[0] == "Nothing has run yet."
    assert shown[1].strip() == "kfm run"
    assert shown[-1] == "1 dataset: 1 never. All: kfm status --all"
    assert STYLE.sub("", on_terminal("--all")).startswith("nothing has run yet: kfm run\n")


def test_causes_come_first_each_with_its_command(kfm: Kfm, app: FakeApp, valid: Valid) -> None:
    """The kind, whom it is about, how much, since when, by whom; what becomes of it; a command to paste."""
    app.ledger.lists = {"runs": [make_run()], "heads": [PROMOTION], "switches": [make_switch()]}
    document = documents(kfm, valid)
    (need,) = document["needs"]
    assert (need["kind"], need["about"]) == ("paused", ["levels"])
    lines = brief(document, "No dataset is behind; 1 thing needs someone.")
    assert lines[0] == "No dataset is behind; 1 thing needs someone."
    assert lines[1].endswith(", read 2026-01-02 00:00:00 UTC")
    assert lines[3].startswith("paused      levels · ")
    assert " · since 2026-01-01 23:59:00 UTC" in lines[3]
    assert lines[4].endswith("; until it is lifted")
    assert lines[5].strip() == need["command"] == "kfm switch set running --dataset levels --rationale TEXT"
    assert coloured(lines)[3].startswith("\x1b[33mpaused\x1b[0m      levels")
    assert [STYLE.sub("", line) for line in coloured(lines)] == lines


@pytest.mark.parametrize("count", [1, 4, 30])
@pytest.mark.parametrize("width", [80, 200])
def test_what_does_not_fit_is_counted(kfm: Kfm, app: FakeApp, valid: Valid, count: int, width: int) -> None:
    """However much is wrong, a screen shows all that is printed; no command is cut, none is forgotten."""
    running = [
        make_run(run_id=f"busy-{n}", window_start_ms=n, status="running", end_time_ms=None) for n in range(9)
    ]
    app.ledger.lists = {"runs": [*running, *failing(count)]}
    document = documents(kfm, valid)
    document["needs"] = [{**document["needs"][0], "about": [f"d{n}"]} for n in range(count)]
    lines = brief(document, "Many things need someone.", width)
    assert rows(lines, width) <= LINES_MAX
    named = [line for line in lines if line.startswith("failing")]
    (more,) = [line for line in lines if line.endswith("more: kfm status --all")] or ["and 0 more:"]
    assert len(named) + int(more.split()[1]) == count
    assert len(named) >= 1
    assert sum(line.strip() == document["needs"][0]["command"] for line in lines) == len(named)
    assert "            and 6 more: kfm runs --status running" in lines


def test_what_no_cause_tells_is_told(kfm: Kfm, app: FakeApp, valid: Valid) -> None:
    """A target that is behind needs a command although every dataset is fresh."""
    app.ledger.lists = {"runs": [make_run()], "heads": [PROMOTION], "projected": {("levels", "local"): 2}}
    document = documents(kfm, valid) | {"needs": []}
    lines = brief(document, "Nothing needs anyone.")
    assert lines[0].startswith("Behind: target local does not show version 3 of dataset levels")
    assert lines[1].strip() == "kfm project"
    assert "1 dataset promoted, and not shown yet: kfm project" in lines


def test_watching_draws_again_until_it_is_ended() -> None:
    """Each time it is read anew; Ctrl-C is its end, and no error."""
    drawn: list[str] = []
    clock = Impatient(waits=2)
    assert watch(lambda: [f"read {len(drawn)}"], drawn.append, clock, every_ms=5000) == 0
    assert drawn == [f"{CLEAR}read {n}\nRefreshed every 5.0 s; Ctrl-C ends it.\n" for n in range(2)]
    assert clock.slept == [0, 5000, 5000]


@pytest.mark.parametrize("arguments", [["--watch", "--json"], ["--watch"], ["--watch", "--all"]])
def test_watching_needs_a_terminal(kfm: Kfm, app: FakeApp, arguments: list[str]) -> None:
    """JSON, files and pipes are not drawn on; what to do instead is said."""
    called = kfm("status", *arguments)
    assert called.code == 2
    assert "--watch" in (called.err or called.document["message"])
    assert "headline" not in called.out
