"""A disk in memory under SQLite that writes down everything and can show what a power cut leaves.

`BrittleDisk` is an apsw VFS. Its log holds every write, truncation, sync, deletion and, by
`mark()`, what the program was told in between. `after_cut()` replays the log up to a moment and
returns the bytes of each file as the next boot may find them:

- what was written before a file's last sync is there;
- of what was written later, any sectors are there, in any combination;
- a file that was never synced may be missing; one that was deleted may be back, until the
  first sync of a new file in the folder.
"""

from __future__ import annotations

import os
import random
from itertools import pairwise
from typing import Any

import apsw

SECTOR = 512

Event = tuple[Any, ...]  # kind, file name, …


class BrittleFile:
    def __init__(self, disk: BrittleDisk, name: str) -> None:
        self._disk = disk
        self._name = name
        self._data = disk.files.setdefault(name, bytearray())

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        return bytes(self._data[offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._disk.log.append(("write", self._name, offset, bytes(data)))
        _put(self._data, offset, bytes(data))

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self._disk.log.append(("truncate", self._name, size))
        del self._data[size:]

    def xSync(self, _flags: int) -> None:  # noqa: N802
        self._disk.log.append(("sync", self._name))

    def xFileSize(self) -> int:  # noqa: N802
        return len(self._data)

    def xClose(self) -> None: ...  # noqa: N802
    def xLock(self, _level: int) -> None: ...  # noqa: N802
    def xUnlock(self, _level: int) -> None: ...  # noqa: N802

    def xCheckReservedLock(self) -> bool:  # noqa: N802
        return False

    def xFileControl(self, _operation: int, _pointer: int) -> bool:  # noqa: N802
        return False

    def xSectorSize(self) -> int:  # noqa: N802
        return 4096

    def xDeviceCharacteristics(self) -> int:  # noqa: N802
        return apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE  # as SQLite takes any disk to be


class BrittleDisk(apsw.VFS):
    def __init__(self, name: str) -> None:
        self.name = name
        self.files: dict[str, bytearray] = {}
        self.log: list[Event] = []
        super().__init__(name, "")

    def mark(self, fact: Any) -> None:
        """The program was told this, with everything before it on the record."""
        self.log.append(("mark", "", fact))

    def connect(self, path: str) -> apsw.Connection:
        connection = apsw.Connection(path, vfs=self.name)
        connection.pragma("locking_mode", "exclusive")  # such a disk has no shared memory
        return connection

    def xOpen(self, name: Any, flags: list[int]) -> Any:  # noqa: N802
        flags[1] = flags[0]
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        return BrittleFile(self, os.path.basename(path or "temporary"))

    def xDelete(self, name: str, syncdir: bool) -> None:  # noqa: N802
        short = os.path.basename(name)
        if short not in self.files:
            raise apsw.IOError
        self.log.append(("delete", short, syncdir))
        del self.files[short]

    def xAccess(self, name: str, _flags: int) -> bool:  # noqa: N802
        return os.path.basename(name) in self.files


def _put(data: bytearray, offset: int, piece: bytes) -> None:
    if len(data) < offset:
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(piece)] = piece


def _sectors(offset: int, data: bytes) -> list[tuple[int, bytes]]:
    """The pieces of a write that a disk writes in one go."""
    cuts = [offset, *range(offset - offset % SECTOR + SECTOR, offset + len(data), SECTOR), offset + len(data)]
    return [(start, data[start - offset : end - offset]) for start, end in pairwise(cuts)]


def after_cut(log: list[Event], moment: int, rng: random.Random) -> tuple[dict[str, bytes], list[Any]]:
    """The files as the next boot may find them, and what the program had been told."""
    told = [event[2] for event in log[:moment] if event[0] == "mark"]
    safe, loose, ghosts = _at(log[:moment])
    for name, pending in loose.items():
        if name not in safe and rng.random() < 0.3:
            continue  # its entry in the folder was never synced
        _survive(safe.setdefault(name, bytearray()), pending, rng)
    for name, data in ghosts.items():
        if name not in safe and rng.random() < 0.5:
            safe[name] = data
    return {name: bytes(data) for name, data in safe.items()}, told


def _at(log: list[Event]) -> tuple[dict[str, bytearray], dict[str, list[Event]], dict[str, bytearray]]:
    """What is on the disk for sure, what is on its way there, and deleted files that may come back."""
    safe: dict[str, bytearray] = {}
    loose: dict[str, list[Event]] = {}
    ghosts: dict[str, bytearray] = {}
    for event in log:
        kind, name = event[0], event[1]
        if kind == "sync":
            if name not in safe:
                ghosts.clear()  # with the first sync of a new file SQLite syncs the folder, too
            data = safe.setdefault(name, bytearray())
            for pending in loose.pop(name, []):
                _apply(data, pending)
        elif kind == "delete":
            loose.pop(name, None)
            gone = safe.pop(name, None)
            if gone is not None and not event[2]:
                ghosts[name] = gone
        elif kind != "mark":
            loose.setdefault(name, []).append(event)
    return safe, loose, ghosts


def _survive(data: bytearray, pending: list[Event], rng: random.Random) -> None:
    """Any part of what was never synced."""
    keep = rng.choice([0.0, 0.1, 0.5, 0.9, 1.0])
    for event in pending:
        if event[0] == "truncate":
            if rng.random() < keep:
                _apply(data, event)
            continue
        for offset, piece in _sectors(event[2], event[3]):
            if rng.random() < keep:
                _put(data, offset, piece)


def _apply(data: bytearray, event: Event) -> None:
    if event[0] == "write":
        _put(data, event[2], event[3])
    else:
        del data[event[2] :]
