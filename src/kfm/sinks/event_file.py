"""Events as lines of a file. A line counts once it is on the disk, and only whole lines are there.

A file that is full, or of an earlier day, is moved away under the lock that its writers take, and a new one
is begun: `events.jsonl` becomes `events.000001.jsonl`. What was moved away is compressed by the next one that
closes the file: a process that dies in between leaves it as it was, and another begins again.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import stat
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from kfm.model.errors import BackendUnavailable
from kfm.model.runs import OutboxMessage
from kfm.system import sync, sync_folder

if TYPE_CHECKING:
    from kfm.ports import Clock

LOCK_WAIT_MS = 2_000
LOCK_STEP_MS = 20
REOPENED_MAX = 10
CHUNK_BYTES = 64 * 1024
# With this every event of ours begins: its canonical form sorts the members by name.
FIRST_BYTES = b'{"eventTime":'
COMPRESSED = ".gz"
UNFINISHED = ".part"
COMPRESSION = 6
COPY_BYTES = 1024 * 1024

logger = logging.getLogger(__name__)


class Rotation(NamedTuple):
    """When a file is moved away; 0: not for that."""

    bytes_max: int
    period_ms: int

    def is_due(self, size: int, more: int, written_ms: int, now_ms: int) -> bool:
        """`size` bytes were last added to at `written_ms`; so many more are to come."""
        if not size:
            return False
        if self.bytes_max and size + more > self.bytes_max:
            return True
        return bool(self.period_ms) and written_ms // self.period_ms < now_ms // self.period_ms


NEVER = Rotation(0, 0)


class FileCollector:
    """Appends to one file, also beside other processes that do."""

    def __init__(
        self,
        path: str,
        clock: Clock,
        *,
        what: str = "lineage file",
        setting: str = "lineage.path",
        first_bytes: bytes = FIRST_BYTES,
        rotation: Rotation = NEVER,
    ) -> None:
        """`first_bytes` is what every line begins with: by it a torn end is known as ours."""
        self._path = path
        self._clock = clock
        self._what = what
        self._setting = setting
        self._first_bytes = first_bytes
        self._rotation = rotation

    def deliver(self, messages: Sequence[OutboxMessage]) -> int:
        lines = b"".join(message.body.encode("utf-8") + b"\n" for message in messages)
        try:
            self._append(lines)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise BackendUnavailable(
                f"The {self._what} {self._path} can't be written: {reason}.",
                remedy=f"Make it writable, or name another with {self._setting}; nothing is lost meanwhile.",
            ) from None
        return len(messages)

    def close(self) -> None:
        """Compress what was moved away. If that can't be done now it stays as it is."""
        if self._rotation == NEVER:
            return
        try:
            for moved in moved_files(self._path):
                if not moved.endswith(COMPRESSED):
                    _compress(moved)
        except OSError as error:
            logger.warning("%s: a part of it is not compressed: %s", self._path, error.strerror or error)

    def _append(self, lines: bytes) -> None:
        descriptor = self._open_with_room(len(lines))
        try:
            begin = self._whole(descriptor)
            try:
                _write_all(descriptor, lines if _ends_line(descriptor, begin) else b"\n" + lines)
                sync(descriptor)
                if begin == 0:
                    sync_folder(os.path.dirname(self._path))
            except OSError:
                os.ftruncate(descriptor, begin)
                raise
        finally:
            os.close(descriptor)  # and with it the lock

    def _open_with_room(self, more: int) -> int:
        """The file of this name, or a new one in its place."""
        descriptor = self._open_locked()
        if self._rotation == NEVER:
            return descriptor
        try:
            size = self._whole(descriptor)
            written_ms = os.fstat(descriptor).st_mtime_ns // 1_000_000
            if not self._rotation.is_due(size, more, written_ms, self._clock.now_ms()):
                return descriptor
            self._move_away(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return self._open_locked()

    def _whole(self, descriptor: int) -> int:
        """The size, without the torn end of a write that never counted."""
        begin = _sound_end(descriptor, self._first_bytes)
        if begin < os.fstat(descriptor).st_size:
            os.ftruncate(descriptor, begin)
        return begin

    def _move_away(self, descriptor: int) -> None:
        """We have its lock: others that wait for it will see that it is not the one of this name any more."""
        sync(descriptor)
        stem, ending = os.path.splitext(self._path)
        last = max((number for number, _ in _numbered(self._path)), default=0)
        os.rename(self._path, f"{stem}.{last + 1:06d}{ending}")
        sync_folder(os.path.dirname(self._path))

    def _open_locked(self) -> int:
        """The file of this name, ours alone. One that was moved away meanwhile is not it any more."""
        for _ in range(REOPENED_MAX):
            descriptor = self._open()
            try:
                self._lock(descriptor)
                if _is_still(self._path, descriptor):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
        raise BackendUnavailable(f"The {self._what} {self._path} is replaced again and again.")

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
        if os.path.islink(self._path):
            raise BackendUnavailable(
                f"{self._path} is a link, and nothing is appended through one.",
                remedy=f"Name the file itself with {self._setting}; nothing is lost meanwhile.",
            )
        try:
            descriptor = os.open(self._path, flags)
        except FileNotFoundError:
            folder = os.path.dirname(self._path) or "."
            os.makedirs(folder, mode=0o700, exist_ok=True)
            sync_folder(os.path.dirname(folder))
            descriptor = os.open(self._path, flags | os.O_CREAT, 0o640)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise BackendUnavailable(f"{self._path} is no file that lines can be appended to.")
        return descriptor

    def _lock(self, descriptor: int) -> None:
        until_ms = self._clock.monotonic_ms() + LOCK_WAIT_MS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if self._clock.monotonic_ms() >= until_ms:
                    raise
                self._clock.sleep_ms(LOCK_STEP_MS)


def moved_files(path: str) -> list[str]:
    """What was moved away from this name, the oldest first; each once, compressed or not."""
    return [moved for _, moved in _numbered(path)]


def _numbered(path: str) -> list[tuple[int, str]]:
    """With their numbers. A file a day is kept for ever, and every delivery looks here."""
    folder, (stem, ending) = os.path.dirname(path), os.path.splitext(os.path.basename(path))
    ours = re.compile(rf"{re.escape(stem)}\.([0-9]{{6,}}){re.escape(ending)}(?:\{COMPRESSED})?")
    found: dict[int, str] = {}
    for name in sorted(os.listdir(folder or ".") if os.path.isdir(folder or ".") else ()):
        number = ours.fullmatch(name)
        if number:  # as it was written, where its compression did not come to an end
            found.setdefault(int(number[1]), name)
    return [(number, os.path.join(folder, found[number])) for number in sorted(found)]


def event_lines(path: str) -> Iterator[bytes]:
    """Every line under this name, also of what was moved away, in the order in which they were written."""
    import gzip  # late: delivery needs none

    with contextlib.suppress(FileNotFoundError):
        for moved in moved_files(path):
            try:
                file: BinaryIO = open(moved, "rb")  # noqa: SIM115 (closed below)
            except FileNotFoundError:  # compressed meanwhile
                file = open(f"{moved}{COMPRESSED}", "rb")  # noqa: SIM115
            with file:
                yield from gzip.GzipFile(fileobj=file) if file.name.endswith(COMPRESSED) else file
        with open(path, "rb") as file:
            yield from file


def _compress(moved: str) -> None:
    """One process at a time. The compressed file has its name only when it is whole and on the disk."""
    import gzip  # late: most deliveries compress nothing

    plain = os.open(moved, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(plain, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # another process is at it
        if not _is_still(moved, plain):
            return
        made = f"{moved}{COMPRESSED}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        target = os.open(f"{made}{UNFINISHED}", flags, stat.S_IMODE(os.fstat(plain).st_mode))
        try:
            with (
                open(target, "wb", closefd=False) as file,
                gzip.GzipFile("", "wb", COMPRESSION, file, mtime=0) as packed,
            ):
                while data := os.read(plain, COPY_BYTES):
                    packed.write(data)
            sync(target)
        finally:
            os.close(target)
        os.rename(f"{made}{UNFINISHED}", made)
        sync_folder(os.path.dirname(moved))
        os.unlink(moved)
    finally:
        os.close(plain)


def _sound_end(descriptor: int, first_bytes: bytes) -> int:
    """Where the last whole line ends. An end that is not ours to remove counts as whole."""
    size = end = os.fstat(descriptor).st_size
    tail = b""
    while end > 0:
        begin = max(0, end - CHUNK_BYTES)
        chunk = os.pread(descriptor, end - begin, begin)
        cut = chunk.rfind(b"\n")
        tail = (chunk[cut + 1 :] + tail)[: len(first_bytes)]
        if cut >= 0:
            end = begin + cut + 1
            break
        end = begin
    # After a power cut a file may also end in zeros that were never written.
    return end if first_bytes.startswith(tail) or not tail.strip(b"\0") else size


def _ends_line(descriptor: int, size: int) -> bool:
    return size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _is_still(path: str, descriptor: int) -> bool:
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    ours = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)
