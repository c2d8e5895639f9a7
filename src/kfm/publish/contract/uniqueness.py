"""Exact duplicate counting in bounded memory.

A value is remembered as the first 16 bytes of its SHA-256. Past the bound the
hashes are dealt out to buckets in unlinked temporary files, and each bucket is
counted by itself: memory stays bounded however many rows there are.
"""

from __future__ import annotations

import hashlib
import tempfile
from typing import IO

from kfm.publish.contract.model import ContractLimits
from kfm.publish.contract.tally import Tally

_DIGEST_BYTES = 16
_PLACE_BYTES = 8
_RECORD_BYTES = _DIGEST_BYTES + _PLACE_BYTES
_BUCKETS = 64


class Distinct:
    """Which values came before. `duplicates()` ends the counting."""

    def __init__(self, limits: ContractLimits) -> None:
        self._in_memory_max = limits.unique_in_memory_max
        self._seen: set[bytes] = set()
        self._buckets: list[IO[bytes]] = []
        self._row = 0
        self.tally = Tally(limits.samples_max)

    def add(self, key: bytes, place: str) -> None:
        digest = hashlib.sha256(key).digest()[:_DIGEST_BYTES]
        self._row += 1
        if self._buckets:
            self._spill(digest, self._row)
        elif digest in self._seen:
            self.tally.add(place)
        else:
            self._seen.add(digest)
            if len(self._seen) > self._in_memory_max:
                self._open_buckets()

    def _open_buckets(self) -> None:
        self._buckets = [tempfile.TemporaryFile() for _ in range(_BUCKETS)]  # noqa: SIM115
        for digest in self._seen:
            self._spill(digest, 0)
        self._seen = set()

    def _spill(self, digest: bytes, row: int) -> None:
        self._buckets[digest[0] % _BUCKETS].write(digest + row.to_bytes(_PLACE_BYTES, "big"))

    def duplicates(self) -> Tally:
        """The rows that repeat an earlier value."""
        found: list[int] = []
        count = 0
        for bucket in self._buckets:
            with bucket:
                bucket.seek(0)
                seen: set[bytes] = set()
                while record := bucket.read(_RECORD_BYTES):
                    digest = record[:_DIGEST_BYTES]
                    if digest in seen:
                        count += 1
                        found.append(int.from_bytes(record[_DIGEST_BYTES:], "big"))
                        found = sorted(found)[: self.tally.samples_max]
                    seen.add(digest)
        self._buckets = []
        for row in sorted(found):
            self.tally.add(f"row {row}")
        self.tally.count += count - len(found)
        return self.tally

    def close(self) -> None:
        for bucket in self._buckets:
            bucket.close()
        self._buckets = []
