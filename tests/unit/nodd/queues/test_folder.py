"""Spool folders: what else happens in a folder that anybody may write to."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kfm.model.errors import BackendUnavailable, ConfigError
from kfm.nodd.dataset_registry import load_registry
from kfm.nodd.messages.record_outcomes import parse_message
from kfm.nodd.queues import folder_queue as folders
from kfm.nodd.queues.folder_queue import FolderQueue
from kfm.nodd.queues.line_stream import MESSAGE_BYTES_MAX
from kfm.ports import QueueMessage
from tests.stand_ins import FakeClock

pytestmark = pytest.mark.req("WAL-20")


class Spool:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.opened: list[FolderQueue] = []

    def open(self, worker: str = "one", **options: Any) -> FolderQueue:
        self.opened.append(FolderQueue(str(self.folder), self.clock, worker=worker, **options))
        return self.opened[-1]

    def write(self, name: str, data: bytes = b"{}") -> Path:
        path = self.folder / name
        path.write_bytes(data)
        return path

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir() if not path.name.startswith(".leaving-"))

    def die(self, queue: FolderQueue) -> None:
        """Its files are closed by the system, and nothing else is done."""
        self.opened.remove(queue)
        for held in queue._held.values():
            held.close()


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    (tmp_path / "spool").mkdir()
    made = Spool(tmp_path / "spool")
    yield made
    for queue in made.opened:
        queue.close()


def bodies(messages: list[QueueMessage]) -> list[bytes]:
    return [message.body for message in messages]


def receipts(messages: list[QueueMessage]) -> list[str]:
    return [message.receipt for message in messages]


def test_messages_come_in_the_order_of_names(spool: Spool) -> None:
    """Whatever is no message is ignored: hidden and unfinished files, folders, links, pipes."""
    for name in ("b", "a", "c.json"):
        spool.write(name, name.encode())
    spool.write(".hidden")
    spool.write("d.tmp")
    (spool.folder / "folder").mkdir()
    (spool.folder / "link").symlink_to("/etc/hostname")
    os.mkfifo(spool.folder / "pipe")
    queue = spool.open()
    found = queue.receive(10, 0)
    assert bodies(found) == [b"a", b"b", b"c.json"]
    assert [message.message_id for message in found] == ["a", "b", "c.json"]
    assert queue.acknowledge(receipts(found)) == []
    assert spool.names() == [".hidden", "d.tmp", "folder", "link", "pipe"]


def test_waiting_ends_when_something_arrives(spool: Spool) -> None:
    """A receive waits no longer than asked, and not at all for messages that are there."""
    queue = spool.open()
    assert queue.receive(10, 1_000) == []
    assert sum(spool.clock.slept) == 1_000
    slept = spool.clock.sleep_ms

    def sleep(delay_ms: int) -> None:
        slept(delay_ms)
        if len(spool.clock.slept) == 6:
            spool.write("late")

    spool.clock.sleep_ms = sleep  # type: ignore[method-assign]
    assert len(queue.receive(10, 60_000)) == 1
    assert len(spool.clock.slept) == 6


def test_a_file_that_vanished_is_fine(spool: Spool) -> None:
    """Before it was read, or after: nothing is left to do."""
    spool.write("a"), spool.write("b")
    queue = spool.open()
    found = queue.receive(1, 0)
    (spool.folder / "a").unlink()
    (spool.folder / "b").unlink()
    assert queue.receive(10, 0) == []
    assert queue.acknowledge(receipts(found)) == []


@pytest.mark.parametrize("how", ["replaced", "grown", "rewritten"])
def test_what_was_written_after_reading_is_not_removed(spool: Spool, how: str) -> None:
    """A new file under an old name is a new message."""
    path = spool.write("a.json", b"old")
    os.utime(path, ns=(1, 1))
    queue = spool.open()
    found = queue.receive(10, 0)
    if how == "replaced":
        os.rename(spool.write("a.tmp", b"new"), path)
    elif how == "grown":
        with path.open("ab") as file:
            file.write(b" new")
    else:
        path.write_bytes(b"new")
    assert queue.acknowledge(receipts(found)) == []
    again = queue.receive(10, 0)
    assert bodies(again) == [b"old new" if how == "grown" else b"new"]
    assert queue.acknowledge(receipts(again)) == []
    assert spool.names() == []


def test_a_worker_that_dies_while_a_file_leaves_loses_nothing(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was moved aside comes back to the next who looks, also if its name is taken meanwhile."""
    spool.write("a.jsonl", b"1\n2\n")
    first = spool.open("one")
    found = first.receive(10, 0)

    def power_cut(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", power_cut)
        with pytest.raises(KeyboardInterrupt):
            first.acknowledge(receipts(found))
    spool.die(first)
    spool.write("a.jsonl", b"3\n")
    second = spool.open("two")
    again = second.receive(10, 0) + second.receive(10, 0)
    assert sorted(bodies(again)) == [b"1", b"2", b"3"]
    assert second.acknowledge(receipts(again)) == []
    second.close()
    assert os.listdir(spool.folder) == []


def test_a_worker_taken_for_dead_does_no_harm(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that another brought back while it was leaving comes again: once more, not never."""
    spool.write("a", b"1")
    slow, quick = spool.open("slow"), spool.open("quick")
    found = slow.receive(10, 0)
    lstat = os.lstat
    brought: list[QueueMessage] = []

    def meanwhile(path: Any, **options: Any) -> os.stat_result:
        if ".leaving-slow" in str(path) and not brought:
            seen = lstat(path, **options)
            quick.receive(10, 0)  # looks, and brings it back
            brought.append(found[0])
            return seen
        return lstat(path, **options)

    monkeypatch.setattr(os, "lstat", meanwhile)
    assert slow.acknowledge(receipts(found)) == []
    assert brought
    again = quick.receive(10, 0) or slow.receive(10, 0)
    assert bodies(again) == [b"1"]


def test_a_file_that_another_emptied_is_not_read(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who opened a file while another emptied it finds out that it is not there any more."""
    spool.write("a", b"1")
    slow, quick = spool.open("slow"), spool.open("quick")
    locked = folders._locked

    def meanwhile(descriptor: int) -> bool:
        monkeypatch.setattr(folders, "_locked", locked)
        assert quick.acknowledge(receipts(quick.receive(10, 0))) == []
        return locked(descriptor)

    monkeypatch.setattr(folders, "_locked", meanwhile)
    assert slow.receive(10, 0) == []
    assert spool.names() == []


def test_acknowledged_files_can_be_kept(spool: Spool, tmp_path: Path) -> None:
    """In a folder of their own, where none replaces another of the same name."""
    (tmp_path / "done").mkdir()
    queue = spool.open(done_folder=str(tmp_path / "done"))
    for data in (b"1", b"2", b"3"):
        spool.write("a.json", data)
        assert queue.acknowledge(receipts(queue.receive(10, 0))) == []
    kept = sorted((tmp_path / "done").iterdir())
    assert sorted(path.read_bytes() for path in kept) == [b"1", b"2", b"3"]
    assert spool.names() == []


def test_lines_leave_together(spool: Spool) -> None:
    """A file of lines stays until the last of them is acknowledged; blank lines are none."""
    spool.write("a.jsonl", b"1\n\n2\r\n  \n3")
    queue = spool.open()
    one, two = queue.receive(1, 0), queue.receive(10, 0)
    assert bodies(one + two) == [b"1", b"2\r", b"3"]
    assert [message.message_id for message in one + two] == ["a.jsonl:1", "a.jsonl:3", "a.jsonl:5"]
    assert queue.acknowledge(receipts(two)) == []
    assert spool.names() == ["a.jsonl"]
    queue.put_back(receipts(one))
    (again,) = queue.receive(10, 0)
    assert (again.body, again.receives) == (b"1", 2)
    assert queue.acknowledge([again.receipt]) == []
    assert spool.names() == []


def test_files_without_a_message(spool: Spool) -> None:
    """One of blank lines is done; an empty one stays: it may be about to be written."""
    spool.write("a.jsonl", b"\n \n")
    spool.write("b.jsonl", b"")
    queue = spool.open()
    assert queue.receive(10, 0) == []
    assert spool.names() == ["b.jsonl"]
    spool.write("b.jsonl", b"1\n")
    assert bodies(queue.receive(10, 0)) == [b"1"]


def test_what_is_too_long_is_cut_and_refused_by_name(spool: Spool) -> None:
    """Whole file or line: no more is held than is needed to say that it is too long."""
    long = b"x" * (3 * MESSAGE_BYTES_MAX)
    spool.write("a.json", long)
    spool.write("b.jsonl", b"1\n" + long + b"\n" + b" " * (2 * MESSAGE_BYTES_MAX) + b"1\n2\n" + long)
    spool.write("c.json", b"x" * MESSAGE_BYTES_MAX)
    queue = spool.open()
    found = queue.receive(10, 0)
    cut = MESSAGE_BYTES_MAX + 1
    assert [len(body) for body in bodies(found)] == [cut, 1, cut, cut, 1, cut, MESSAGE_BYTES_MAX]
    registry = load_registry()
    codes = [getattr(parse_message(body, registry, 0)[0], "error_code", "") for body in bodies(found)]
    assert [codes[0], codes[2], codes[5]] == ["BODY_TOO_LARGE"] * 3
    queue.put_back(receipts(found))
    assert bodies(queue.receive(10, 0)) == bodies(found)


def test_open_files_are_bounded(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are asked for; and of a folder with millions only some names are sorted at once."""
    monkeypatch.setattr(folders, "HELD_MAX", 4)
    monkeypatch.setattr(folders, "NAMES_MAX", 6)
    for number in range(20):
        spool.write(f"{number:02}", str(number).encode())
    queue = spool.open()
    seen: list[bytes] = []
    for _ in range(5):
        found = queue.receive(100, 0)
        assert len(found) == 4
        assert queue.receive(100, 0) == []
        seen += bodies(found)
        assert queue.acknowledge(receipts(found)) == []
    assert seen == [str(number).encode() for number in range(20)]


def test_without_locks_there_are_duplicates_and_no_losses(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file system that knows none, two workers get the same file, and the second finds it done."""

    def unknown(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", unknown)
    spool.write("a", b"1")
    one, two = spool.open("one"), spool.open("two")
    first, second = one.receive(10, 0), two.receive(10, 0)
    assert bodies(first) == bodies(second) == [b"1"]
    assert one.acknowledge(receipts(first)) == []
    spool.write("a", b"2")
    assert two.acknowledge(receipts(second)) == []
    assert bodies(one.receive(10, 0)) == [b"2"]


def test_one_unreadable_file_does_not_stop_the_others(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are handed out first; then it is said, since it would stay unread in silence."""
    spool.write("a"), spool.write("b")
    opened = os.open

    def denied(path: Any, *rest: Any, **options: Any) -> int:
        if str(path).endswith("/a"):
            raise PermissionError(errno.EACCES, "denied")
        return opened(path, *rest, **options)

    monkeypatch.setattr(os, "open", denied)
    queue = spool.open()
    found = queue.receive(10, 0)
    assert [message.message_id for message in found] == ["b"]
    with pytest.raises(BackendUnavailable, match="a can't be read"):
        queue.receive(10, 0)


def test_a_folder_that_can_not_be_emptied_is_said(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the same messages would come for ever. They still do, and none is lost."""
    spool.write("a", b"1")
    queue = spool.open()
    found = queue.receive(10, 0)

    def denied(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", denied)
        with pytest.raises(BackendUnavailable, match="read-only"):
            queue.acknowledge(receipts(found))
    assert bodies(queue.receive(10, 0)) == [b"1"]


def test_folders_are_looked_at_before_anything_begins(tmp_path: Path) -> None:
    """A wrong path is an error of the configuration; a worker's name can't lead out of the folder."""
    with pytest.raises(ConfigError, match="nowhere"):
        FolderQueue(str(tmp_path / "nowhere"), FakeClock(), worker="one")
    with pytest.raises(ConfigError, match="nowhere"):
        FolderQueue(str(tmp_path), FakeClock(), worker="one", done_folder=str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match="worker"):
        FolderQueue(str(tmp_path), FakeClock(), worker="../one")


def test_removed_files_are_synced_once_a_batch(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was acknowledged stays away after a power cut, at the price of one sync."""
    for number in range(5):
        spool.write(f"{number}")
    queue = spool.open()
    found = queue.receive(10, 0)
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    assert queue.acknowledge(receipts(found)) == []
    assert len(synced) == 1
