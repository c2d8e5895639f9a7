"""Objects in a bucket that a fleet shares.

Bytes are hashed in a nameless file first: a key is their hash, so it is known only at the end. The
upload becomes visible whole or not at all, and two who upload the same bytes write the same object.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import IO

from kfm.objects.local import CHUNK_BYTES, CheckedReader, missing, object_key
from kfm.objects.scratch import nameless_file
from kfm.ports import Bucket

ONE_PUT_BYTES_MAX = 8 * 1024 * 1024


class RemoteObjects:
    """Immutable bytes under their SHA-256, in a bucket."""

    def __init__(self, bucket: Bucket, prefix: str = "", spool_folder: str | None = None) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._spool_folder = spool_folder

    def stage(self, resume_key: str | None = None) -> tuple[RemoteStaging, int]:
        del resume_key  # the next attempt may be on another machine
        return RemoteStaging(self, nameless_file(self._spool_folder)), 0

    def has(self, sha256: str) -> bool:
        return self._bucket.head(self._key(sha256)) is not None

    def size_of(self, sha256: str) -> int | None:
        found = self._bucket.head(self._key(sha256))
        return found.size if found is not None else None

    def open(self, sha256: str) -> CheckedReader:
        if not self.has(sha256):
            raise missing(sha256)
        return CheckedReader(_StreamReader(self._bucket, self._key(sha256)), sha256)

    def local_path(self, sha256: str) -> str | None:
        del sha256  # nothing here can be hard-linked
        return None

    def delete(self, sha256: str) -> None:
        self._bucket.delete(self._key(sha256))

    def all(self) -> Iterator[str]:
        for stat in self._bucket.list(f"{self._prefix}sha256/"):
            yield stat.key.removeprefix(f"{self._prefix}sha256/").replace("/", "", 1)

    def put(self, sha256: str, size: int, file: IO[bytes]) -> None:
        """Upload it, then look whether all of it arrived.

        Also where one of that name is there: it may be damaged, or about to go by a rule of the bucket."""
        key = self._key(sha256)
        file.seek(0)
        if size <= ONE_PUT_BYTES_MAX:
            self._bucket.put(key, file.read())
        else:
            self._bucket.put_stream(key, iter(lambda: file.read(CHUNK_BYTES), b""))
        stat = self._bucket.head(key)
        if stat is None or stat.size != size:
            raise missing(sha256)

    def _key(self, sha256: str) -> str:
        return self._prefix + object_key(sha256)


class RemoteStaging:
    def __init__(self, objects: RemoteObjects, file: IO[bytes]) -> None:
        self._objects = objects
        self._file = file
        self._hash = hashlib.sha256()
        self._size = 0

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._hash.update(data)
        self._size += len(data)

    def commit(self) -> tuple[str, int]:
        sha256 = self._hash.hexdigest()
        try:
            self._objects.put(sha256, self._size, self._file)
        finally:
            self._file.close()
        return sha256, self._size

    def keep_partial(self) -> None:
        self.abort()

    def abort(self) -> None:
        self._file.close()


class _StreamReader:
    """A stream of chunks, read in sizes that the reader chooses."""

    def __init__(self, bucket: Bucket, key: str) -> None:
        self._context = bucket.read(key)
        _, self._chunks = self._context.__enter__()
        self._rest = b""

    def read(self, size: int) -> bytes:
        if not self._rest:
            self._rest = next(self._chunks, b"")
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def close(self) -> None:
        self._context.__exit__(None, None, None)
