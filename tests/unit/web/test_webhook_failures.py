"""The file of refused webhooks is private, bounded, and says nothing of what was sent."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest

from kfm.web.webhooks import NAME, Failures

pytestmark = pytest.mark.req("UPD-12", "TRG-9")
NOW_MS = 1_790_000_000_000


def lines(folder: Path, name: str = NAME) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def test_a_line_for_each(tmp_path: Path) -> None:
    """Time, source, hash, reason and code; readable by its owner alone."""
    Failures(str(tmp_path), lambda: NOW_MS).note("gauges", "sha256:00", "mismatch", "KFM320")
    assert lines(tmp_path) == [
        {
            "time": "2026-09-21T14:13:20Z",
            "source_id": "gauges",
            "envelope_hash": "sha256:00",
            "reason": "mismatch",
            "code": "KFM320",
        }
    ]
    assert os.stat(tmp_path / NAME).st_mode & 0o777 == 0o600


def test_a_flood_is_counted_not_written(tmp_path: Path) -> None:
    """Beyond a rate lines are only counted, and the next one tells how many."""
    clock = [NOW_MS]
    failures = Failures(str(tmp_path), lambda: clock[0], per_second=10, burst=5)
    for _ in range(1000):
        failures.note(None, None, "unsigned", "KFM320")
    assert len(lines(tmp_path)) == 5
    clock[0] += 100
    failures.note(None, None, "unsigned", "KFM320")
    assert lines(tmp_path)[-1]["unwritten_before"] == 995
    clock[0] -= 10_000  # a clock that goes back gives nothing and takes nothing
    failures.note(None, None, "unsigned", "KFM320")
    assert len(lines(tmp_path)) == 6


def test_the_file_is_bounded(tmp_path: Path) -> None:
    """A full file becomes the old one, and the one before that is gone; also with several writers."""
    clock = [NOW_MS]
    two = [Failures(str(tmp_path), lambda: clock[0], bytes_max=1000, burst=10_000) for _ in range(2)]
    for number in range(100):
        two[number % 2].note("gauges", f"{number}", "mismatch", "KFM320")
    assert sorted(path.name for path in tmp_path.iterdir()) == [NAME, f"{NAME}.1"]
    assert (tmp_path / NAME).stat().st_size <= 1000
    kept = [int(one["envelope_hash"]) for name in (f"{NAME}.1", NAME) for one in lines(tmp_path, name)]
    assert kept == list(range(100 - len(kept), 100)), "the latest, none twice, none missing in between"


def test_two_who_find_it_full_move_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process was faster: its new file stays, and so does the full one."""
    one, two = (Failures(str(tmp_path), lambda: NOW_MS, bytes_max=1000) for _ in range(2))
    number = 0
    while not (tmp_path / NAME).exists() or (tmp_path / NAME).stat().st_size < 900:
        one.note("gauges", f"{number}", "mismatch", "KFM320")
        number += 1
    plain = fcntl.flock

    def overtaken(descriptor: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", plain)
        two.note("gauges", "faster", "mismatch", "KFM320")
        plain(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", overtaken)
    one.note("gauges", "slower", "mismatch", "KFM320")
    assert len(lines(tmp_path, f"{NAME}.1")) == number
    assert [each["envelope_hash"] for each in lines(tmp_path)] == ["faster", "slower"]


def test_trouble_with_the_file_is_nobodys_answer(tmp_path: Path) -> None:
    """A folder that is gone, or a planted link, stops nothing and is not followed."""
    Failures(str(tmp_path / "gone"), lambda: NOW_MS).note("a", None, "mismatch", "KFM320")
    (tmp_path / "victim").write_text("mine")
    (tmp_path / NAME).symlink_to(tmp_path / "victim")
    Failures(str(tmp_path), lambda: NOW_MS).note("a", None, "mismatch", "KFM320")
    assert (tmp_path / "victim").read_text() == "mine"
