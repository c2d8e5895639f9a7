"""Verified reads: the checksum is checked again after the read."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from kfm.model.errors import StoreCorrupt

if TYPE_CHECKING:
    from kfm.ports import Reader

CHUNK_BYTES = 1024 * 1024
_SHA256 = re.compile(r"[0-9a-f]{64}")


def object_key(sha256: str) -> str:
    """Where an object stands below its store's root; two levels keep folders small."""
    if not _SHA256.fullmatch(sha256):
        raise ValueError(f"not a SHA-256 in hex: {sha256[:80]!r}")
    return f"sha256/{sha256[:2]}/{sha256[2:]}"


class CheckedReader:
    """Hashes what it reads; a read to the end verifies that the bytes are still the right ones."""

    def __init__(self, inner: Reader, sha256: str) -> None:
        self._inner = inner
        self._expected = sha256
        self._hash = hashlib.sha256()

    def read(self, size: int) -> bytes:
        data = self._inner.read(size)
        if data:
            self._hash.update(data)
        elif size > 0 and self._hash.hexdigest() != self._expected:
            raise StoreCorrupt(f"Object sha256:{self._expected} holds other bytes.")
        return data

    def close(self) -> None:
        self._inner.close()


def missing(sha256: str) -> StoreCorrupt:
    return StoreCorrupt(f"Object sha256:{sha256} is not in the object store.")
