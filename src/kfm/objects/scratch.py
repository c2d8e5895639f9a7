"""Objects that vanish with the process: what a dry-run fetches into.

Their files are unlinked before the first byte is written, so the visible file tree never changes.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from typing import IO

from kfm.objects.local import CheckedReader, missing, object_key


class ScratchObjects:
    """Immutable bytes under their SHA-256, in nameless files."""

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder
        self._files: dict[str, IO[bytes]] = {}

    def objects(self) -> ScratchObjects:
        return self

    def stage(self, resume_key: str | None = None) -> tuple[ScratchStaging, int]:
        del resume_key  # nothing survives that could be resumed
        return ScratchStaging(self._files, nameless_file(self._folder)), 0

    def has(self, sha256: str) -> bool:
        object_key(sha256)
        return sha256 in self._files

    def size_of(self, sha256: str) -> int | None:
        return os.fstat(self._files[sha256].fileno()).st_size if self.has(sha256) else None

    def open(self, sha256: str) -> CheckedReader:
        if not self.has(sha256):
            raise missing(sha256)
        return CheckedReader(PositionReader(self._files[sha256]), sha256)

    def local_path(self, sha256: str) -> str | None:
        del sha256  # there is no name to link
        return None

    def delete(self, sha256: str) -> None:
        file = self._files.pop(sha256, None)
        if file is not None:
            file.close()

    def all(self) -> Iterator[str]:
        yield from sorted(self._files)

    def close(self) -> None:
        for sha256 in list(self._files):
            self.delete(sha256)


class ScratchStaging:
    def __init__(self, kept: dict[str, IO[bytes]], file: IO[bytes]) -> None:
        self._kept = kept
        self._file = file
        self._hash = hashlib.sha256()
        self._size = 0

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._hash.update(data)
        self._size += len(data)

    def commit(self) -> tuple[str, int]:
        self._file.flush()
        sha256 = self._hash.hexdigest()
        if sha256 in self._kept:
            self._file.close()
        else:
            self._kept[sha256] = self._file
        return sha256, self._size

    def keep_partial(self) -> None:
        self.abort()

    def abort(self) -> None:
        self._file.close()


class PositionReader:
    """Reads at its own place, so that several readers share one nameless file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._descriptor = file.fileno()
        self._at = 0

    def read(self, size: int) -> bytes:
        data = os.pread(self._descriptor, size, self._at)
        self._at += len(data)
        return data

    def close(self) -> None:
        """The file belongs to the store."""


def nameless_file(folder: str | None = None) -> IO[bytes]:
    return tempfile.TemporaryFile(buffering=256 * 1024, dir=folder)
