"""Bodies that discovery had to read in full, kept in nameless files so that they need not come twice."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import IO

CHUNK_BYTES = 1024 * 1024
SPOOL_BYTES_MAX = 1024 * 1024 * 1024


class Spool:
    """Address → bytes, up to a limit; what does not fit is simply fetched again."""

    def __init__(self, bytes_max: int = SPOOL_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._kept: dict[str, tuple[IO[bytes], int]] = {}

    def new_file(self) -> IO[bytes]:
        return tempfile.TemporaryFile()

    def keep(self, key: str, file: IO[bytes], size: int) -> None:
        self.drop(key)
        if self._bytes + size > self._bytes_max:
            file.close()
            return
        file.flush()
        self._kept[key] = (file, size)
        self._bytes += size

    def drop(self, key: str) -> None:
        file, size = self._kept.pop(key, (None, 0))
        self._bytes -= size
        if file is not None:
            file.close()

    def has(self, key: str) -> bool:
        return key in self._kept

    def chunks(self, key: str, offset: int) -> Iterator[bytes]:
        descriptor = self._kept[key][0].fileno()
        while data := os.pread(descriptor, CHUNK_BYTES, offset):
            offset += len(data)
            yield data
