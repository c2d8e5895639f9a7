"""One file of a spool folder: its messages, which of them are out, and when it is done."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from kfm.queues.streams import MESSAGE_BYTES_MAX

CHUNK_BYTES = 64 * 1024
LINES = ".jsonl"


class Part(NamedTuple):
    """Where a message is in its file."""

    number: int | None  # of its line; None: it is the whole file
    start: int
    length: int
    receives: int = 1
    until_ms: int = 0  # while it is out: when it comes again (monotonic)


class Spooled:
    """An open file under our lock. Bytes are not kept: what is put back is read again."""

    def __init__(self, name: str, descriptor: int, found: os.stat_result) -> None:
        self.name = name
        self.shown = os.fsencode(name).decode("utf-8", "replace")
        self.size = found.st_size
        self.identity = identity_of(found)
        self._file = os.fdopen(descriptor, "rb", buffering=CHUNK_BYTES)
        self._ready: deque[Part] = deque()
        self._out: dict[str, Part] = {}
        self._done = 0
        self._line = 0
        self._position = 0
        self._at_end = not name.endswith(LINES)
        if self._at_end:
            self._ready.append(Part(None, 0, min(self.size, MESSAGE_BYTES_MAX + 1)))

    @property
    def is_spent(self) -> bool:
        """Every message was handed out and acknowledged."""
        return self._at_end and not self._ready and not self._out

    @property
    def is_untouched(self) -> bool:
        return not self._out and not self._done

    def take(self, limit: int, until_ms: int) -> Iterator[tuple[Part, bytes]]:
        """The next messages, those that were put back first; they are out until then."""
        for _ in range(limit):
            if self._ready:
                part = self._ready.popleft()
                body = _read(self._file.fileno(), part.start, part.length)
            else:
                found = self._next_line()
                if found is None:
                    return
                part, body = found
            self._out[str(part.number)] = part._replace(until_ms=until_ms)
            yield part, body

    def acknowledge(self, part: str) -> bool:
        """False if it is not out."""
        if self._out.pop(part, None) is None:
            return False
        self._done += 1
        return True

    def put_back(self, part: str) -> None:
        found = self._out.pop(part, None)
        if found is not None:
            self._ready.appendleft(found._replace(receives=found.receives + 1))

    def lapsed(self, now_ms: int) -> list[str]:
        """Those of which nothing was heard in time."""
        return [key for key, part in self._out.items() if part.until_ms <= now_ms]

    def close(self) -> None:
        """And with it the lock goes."""
        self._file.close()

    def _next_line(self) -> tuple[Part, bytes] | None:
        """The next line that is not blank; of one that is too long one byte more than a message may have."""
        while not self._at_end:
            start = self._position
            line = self._file.readline(MESSAGE_BYTES_MAX + 1)
            self._position += len(line)
            if not line:  # empty, or cut meanwhile
                self._at_end = True
                break
            self._line += 1
            body = line.removesuffix(b"\n")
            while line and not line.endswith(b"\n"):
                line = self._file.readline(CHUNK_BYTES)
                self._position += len(line)
            self._at_end = self._position >= self.size  # what is written from now on is found when it leaves
            if len(body) > MESSAGE_BYTES_MAX or body.strip():
                return Part(self._line, start, len(body)), body
        return None


def identity_of(found: os.stat_result) -> tuple[int, int, int, int]:
    """Changes when the file is replaced, grows or is written again; not when it is moved."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def fsync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(descriptor: int, start: int, length: int) -> bytes:
    """A range, shorter if the file was cut meanwhile: then it is not removed either."""
    found = bytearray()
    while len(found) < length:
        chunk = os.pread(descriptor, length - len(found), start + len(found))
        if not chunk:
            break
        found += chunk
    return bytes(found)
