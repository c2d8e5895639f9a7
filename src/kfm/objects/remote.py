"""Objects in a bucket that a fleet shares.

Bytes are hashed in a nameless file first: a key is their hash, so it is known only at the end. The
upload becomes visible whole or not at all, and two who upload the same bytes write the same object.

No bucket deletes an object on the condition that it was not staged again. So a collector takes a copy of what
it is about to delete, and puts it back if its lease turns out to have ended meanwhile; a reader that misses
an object looks among these copies, too.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import IO

from kfm.model.errors import BackendUnavailable
from kfm.model.records import StoredObject
from kfm.objects.local import CHUNK_BYTES, CheckedReader, missing, names_object, object_key
from kfm.objects.scratch import nameless_file
from kfm.ports import Bucket, CollectorLease

ONE_PUT_BYTES_MAX = 8 * 1024 * 1024
TAKEN = "taken/"  # copies of what a collector is about to delete
AT_ONCE = 64  # objects between two looks at the lease
IN_FLIGHT = 16
COPY_BYTES_MAX = 1024 * 1024 * 1024  # a server needs longer for more than one call may take
LISTED_FOR_ONE = 50  # objects of a listing that are read in place of one request
LEFT_MS = 24 * 60 * 60 * 1000  # so long the copies of a collector that stalled are kept for it


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

    def sizes_of(self, names: Iterable[str]) -> dict[str, int | None]:
        """Of many: from a listing, a thousand to a request. Only where the bucket holds far more than these,
        what was not seen in a fair part of it is asked for, several at a time."""
        found: dict[str, int | None] = dict.fromkeys(names)
        listing = self.stored()
        for one in islice(listing, LISTED_FOR_ONE * len(found)):
            if one.sha256 in found:
                found[one.sha256] = one.size
        if next(listing, None) is not None:
            unseen = [name for name, size in found.items() if size is None]
            with ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="kfm-sizes") as pool:
                found.update(zip(unseen, pool.map(self.size_of, unseen), strict=True))
        return found

    def open(self, sha256: str) -> CheckedReader:
        if not self.has(sha256) and not self._put_back(sha256):
            raise missing(sha256)
        return CheckedReader(_StreamReader(self._bucket, self._key(sha256)), sha256)

    def local_path(self, sha256: str) -> str | None:
        del sha256  # nothing here can be hard-linked
        return None

    def delete(self, sha256: str) -> None:
        """With the copies that a collector may have left, so that nothing brings it back."""
        self._bucket.delete(self._key(sha256))
        for stat in list(self._bucket.list(f"{self._prefix}{TAKEN}{sha256}/")):
            self._bucket.delete(stat.key)

    def all(self) -> Iterator[str]:
        return (one.sha256 for one in self.stored())

    # --- collecting ---

    def stored(self) -> Iterator[StoredObject]:
        for stat in self._bucket.list(f"{self._prefix}sha256/"):
            sha256 = stat.key.removeprefix(f"{self._prefix}sha256/").replace("/", "", 1)
            if names_object(sha256):  # what else lies there is not ours
                yield StoredObject(sha256=sha256, size=stat.size, modified_ms=_age(stat.modified_ms))

    def delete_old(
        self, names: Sequence[str], before_ms: int, lease: CollectorLease
    ) -> Iterator[dict[str, bool]]:
        with ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="kfm-collect") as pool:
            for at in range(0, len(names), AT_ONCE):
                part = names[at : at + AT_ONCE]
                lease.check()
                sizes = pool.map(lambda name: self._size_if_older(name, before_ms), part)
                old = {name: size for name, size in zip(part, sizes, strict=True) if size is not None}
                self._take([name for name, size in old.items() if size <= COPY_BYTES_MAX], pool, lease)
                for name, size in old.items():
                    if size > COPY_BYTES_MAX:
                        lease.confirm()
                        self.delete(name)
                yield {name: name in old for name in part}

    def _size_if_older(self, sha256: str, before_ms: int) -> int | None:
        found = self._bucket.head(self._key(sha256))
        return found.size if found is not None and _age(found.modified_ms) < before_ms else None

    def _take(self, names: Sequence[str], pool: ThreadPoolExecutor, lease: CollectorLease) -> None:
        """Delete them; put them back unless it is certain that nothing was staged meanwhile."""
        copies = [f"{self._prefix}{TAKEN}{name}/{lease.fence}" for name in names]
        keys = [self._key(name) for name in names]
        _all(pool.map(self._bucket.copy, keys, copies))
        try:
            lease.confirm()
            _all(pool.map(self._bucket.delete, keys))
            lease.confirm()
        except BaseException:
            with contextlib.suppress(BackendUnavailable):  # the copies stay: readers find them
                _all(pool.map(self._bucket.copy, copies, keys))
            raise
        _all(pool.map(self._bucket.delete, copies))

    def _put_back(self, sha256: str) -> bool:
        """From the copy of a collector that died or stalled. The copy stays: it may want it, too."""
        found = list(self._bucket.list(f"{self._prefix}{TAKEN}{sha256}/"))
        return any(self._bucket.copy(stat.key, self._key(sha256)) for stat in found)

    def leftovers(self, before_ms: int) -> list[tuple[str, int]]:
        """Copies that a collector has left; one that only stalled may want them for a day."""
        found = self._bucket.list(self._prefix + TAKEN)
        stale = [stat for stat in found if _age(stat.modified_ms) < before_ms - LEFT_MS]
        return [(stat.key.removeprefix(self._prefix), stat.size) for stat in stale]

    def tidy(self, before_ms: int) -> int:
        """They go back to where they were, to be judged again."""
        stale = self.leftovers(before_ms)
        for name, _ in stale:
            sha256 = name.split("/")[1]
            if not self.has(sha256):
                self._bucket.copy(self._prefix + name, self._key(sha256))
            self._bucket.delete(self._prefix + name)
        return len(stale)

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


def _all(results: Iterable[object]) -> None:
    for _ in results:
        pass


def _age(modified_ms: int | None) -> int:
    """When it was staged; what can't be known is taken for fresh."""
    return 1 << 62 if modified_ms is None else modified_ms


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
