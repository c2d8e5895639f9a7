"""Events in a file: whole lines only, durable before they count, also with other writers."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfm.model.errors import BackendUnavailable
from kfm.model.runs import OutboxMessage
from kfm.sinks import event_file as module
from kfm.sinks.event_file import FileCollector
from kfm.system import SystemClock
from tests.stand_ins import FakeClock


def messages(*numbers: int) -> list[OutboxMessage]:
    return [
        OutboxMessage(
            number=number,
            event_id=f"e{number}",
            topic="openlineage",
            subject="s",
            body=f'{{"eventTime":"2026-01-01T00:00:00.000Z","n":"é{number}"}}',
            recorded_at_ms=0,
        )
        for number in numbers
    ]


def lines(*numbers: int) -> str:
    return "".join(message.body + "\n" for message in messages(*numbers))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "lineage" / "events.jsonl"


@pytest.mark.req("UPD-15")
def test_messages_become_lines(path: Path) -> None:
    """Each message is a line with its exact bytes, in order; the folder is made as needed."""
    collector = FileCollector(str(path), FakeClock())
    assert collector.deliver(messages(1, 2)) == 2
    assert collector.deliver(messages(3)) == 1
    assert path.read_text(encoding="utf-8") == lines(1, 2, 3)
    assert path.stat().st_mode & 0o007 == 0
    collector.close()


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    """A link in place of the file leads to no other file; the events stay where they were."""
    (tmp_path / "other").write_text("theirs")
    (tmp_path / "events.jsonl").symlink_to("other")
    with pytest.raises(BackendUnavailable, match="is a link") as caught:
        FileCollector(str(tmp_path / "events.jsonl"), FakeClock()).deliver(messages(1))
    assert "lineage.path" in caught.value.way_out
    assert (tmp_path / "other").read_text() == "theirs"


@pytest.mark.parametrize("cut", range(1, 50, 7))
def test_a_torn_end_is_removed(path: Path, cut: int) -> None:
    """What a power cut left of a line is removed before the next is written."""
    path.parent.mkdir(parents=True)
    whole = lines(1, 2).encode()
    path.write_bytes(whole[:-cut])
    FileCollector(str(path), FakeClock()).deliver(messages(2, 3))
    assert path.read_text(encoding="utf-8") == lines(1, 2, 3)


def test_zeros_after_a_power_cut_are_removed(path: Path) -> None:
    """A file that was made longer but never filled ends where its last line does."""
    path.parent.mkdir(parents=True)
    path.write_bytes(lines(1).encode() + bytes(100_000))
    FileCollector(str(path), FakeClock()).deliver(messages(2))
    assert path.read_text(encoding="utf-8") == lines(1, 2)


def test_a_long_torn_end_is_removed(path: Path) -> None:
    """Also one that is longer than what is read at a time."""
    path.parent.mkdir(parents=True)
    path.write_bytes(lines(1).encode() + b'{"eventTime":' + b"x" * 200_000)
    FileCollector(str(path), FakeClock()).deliver(messages(2))
    assert path.read_text(encoding="utf-8") == lines(1, 2)


def test_what_is_not_ours_is_kept(path: Path) -> None:
    """A file that another program began is not cut, whatever it ends with."""
    path.parent.mkdir(parents=True)
    path.write_text("my notes\nno line end")
    FileCollector(str(path), FakeClock()).deliver(messages(1))
    assert path.read_text(encoding="utf-8") == "my notes\nno line end\n" + lines(1)


def test_nothing_counts_before_it_is_on_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is flushed after the last byte, and the folder when the file is new, before it is answered."""
    calls: list[str] = []

    def spy(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def spied(descriptor: int, *rest: Any) -> Any:
            kind = "folder" if name == "fsync" and os.path.isdir(f"/proc/self/fd/{descriptor}") else "file"
            calls.append(f"{name} {kind}")
            return real(descriptor, *rest)

        return spied

    collector = FileCollector(str(path), FakeClock())
    monkeypatch.setattr(module.os, "write", spy("write", os.write))
    monkeypatch.setattr(module.os, "fsync", spy("fsync", os.fsync))
    collector.deliver(messages(1))
    assert calls[-3:] == ["write file", "fsync file", "fsync folder"]
    calls.clear()
    collector.deliver(messages(2))
    assert calls == ["write file", "fsync file"]


@pytest.mark.parametrize("failing", ["write", "fsync"])
def test_a_full_disk_leaves_no_half_line(path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    """If a write fails, the file is as it was, and the trouble is told with a way out."""
    collector = FileCollector(str(path), FakeClock())
    collector.deliver(messages(1))
    real_write = os.write

    def full(descriptor: int, data: Any = b"") -> int:
        if failing == "write" and len(data) > 5:
            return real_write(descriptor, data[:5])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.os, failing, full)
    with pytest.raises(BackendUnavailable, match="no space left") as trouble:
        collector.deliver(messages(2))
    assert "lineage.path" in trouble.value.way_out
    monkeypatch.undo()
    assert path.read_text(encoding="utf-8") == lines(1)


def test_a_file_that_is_held_is_waited_for_and_then_given_up(path: Path) -> None:
    """A lock that is held too long is an error that names the holder; nothing was written."""
    clock = FakeClock()
    collector = FileCollector(str(path), clock)
    collector.deliver(messages(1))
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(BackendUnavailable):
            collector.deliver(messages(2))
    assert clock.passed_ms >= module.LOCK_WAIT_MS
    assert path.read_text(encoding="utf-8") == lines(1)


def test_a_file_that_was_rotated_away_is_not_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the file is renamed between its opening and its locking, the new one of that name gets the lines."""
    collector = FileCollector(str(path), FakeClock())
    collector.deliver(messages(1))
    real, moved = fcntl.flock, path.with_suffix(".1")

    def rotate(descriptor: int, operation: int) -> None:
        if not moved.exists():
            path.rename(moved)
        real(descriptor, operation)

    monkeypatch.setattr(module.fcntl, "flock", rotate)
    collector.deliver(messages(2))
    assert (moved.read_text(encoding="utf-8"), path.read_text(encoding="utf-8")) == (lines(1), lines(2))


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_file_is_refused(path: Path, kind: str) -> None:
    """A folder or a pipe under that name is trouble that is told, not a hang."""
    path.parent.mkdir(parents=True)
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    with pytest.raises(BackendUnavailable):
        FileCollector(str(path), FakeClock()).deliver(messages(1))


def test_several_writers_lose_no_line(path: Path) -> None:
    """Lines of writers at once are all there, and whole."""

    def write(first: int) -> None:
        collector = FileCollector(str(path), SystemClock())
        for number in range(first, first + 10):
            collector.deliver(messages(number))

    threads = [threading.Thread(target=write, args=(first,)) for first in (100, 200, 300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    written = path.read_text(encoding="utf-8").splitlines()
    assert sorted(written) == sorted(
        message.body for first in (100, 200, 300) for message in messages(*range(first, first + 10))
    )
