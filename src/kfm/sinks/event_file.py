"""Events as lines of a file. A line counts once it is on the disk, and only whole lines are there."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Sequence
from typing import TYPE_CHECKING

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
    ) -> None:
        """`first_bytes` is what every line begins with: by it a torn end is known as ours."""
        self._path = path
        self._clock = clock
        self._what = what
        self._setting = setting
        self._first_bytes = first_bytes

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
        return None

    def _append(self, lines: bytes) -> None:
        descriptor = self._open_locked()
        try:
            begin = _sound_end(descriptor, self._first_bytes)
            if begin < os.fstat(descriptor).st_size:
                os.ftruncate(descriptor, begin)  # the torn end of a write that never counted
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
