"""Packed columns: the JSON of a whole batch in zlib, which repeats itself from unit to unit.

What a seal hashes and what a reader gets is the text; how it is stored is told by the column alone.
"""

from __future__ import annotations

import zlib

from kfm.model.errors import StoreCorrupt

PACKED_MIN = 512  # bytes; below that there is little that repeats
LEVEL = 3  # as quick as 1; what is more costs five times as much for a tenth


def split(data: bytes) -> tuple[str, bytes | None]:
    """The text column and the packed one: one of them has it."""
    if len(data) < PACKED_MIN:
        return data.decode(), None
    return "", zlib.compress(data, LEVEL)


def joined(text: str, packed: bytes | None) -> str:
    return text if packed is None else unpacked(packed).decode()


def unpacked(packed: bytes) -> bytes:
    try:
        return zlib.decompress(packed)
    except zlib.error as error:
        raise StoreCorrupt(
            f"A packed column is not as it was written: {error}.",
            remedy="`kfm audit verify` says what else is damaged. Stop, and copy the database first.",
        ) from error
