"""Gzip, member after member, with bounds on what comes out: a small file may hold terabytes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from kfm.nodd.inspect.verdicts import MIB

PIECE_BYTES = 256 * 1024
RATIO_FREE_BYTES = 16 * MIB  # small files may be as dense as they like
MEMBERS_MAX = 100_000
_GZIP = 16 + zlib.MAX_WBITS


class Damaged(Exception):
    """The stream is not gzip, or its checksum is wrong."""


class Bomb(Exception):
    """More comes out than is allowed."""


class Inflater:
    """Feed it pieces; it yields what they hold, never more than a piece at once."""

    def __init__(self, *, bytes_max: int, ratio_max: int) -> None:
        self._bytes_max = bytes_max
        self._ratio_max = ratio_max
        self._member: zlib._Decompress | None = None
        self._members = 0
        self._rest = b""
        self._trailing = False
        self.taken = 0
        self.given = 0

    @property
    def complete(self) -> bool:
        """Did the stream end where a member ends?"""
        return self._members > 0 and self._member is None and not self._rest

    def feed(self, data: bytes) -> Iterator[bytes]:
        self.taken += len(data)
        data, self._rest = self._rest + data, b""
        while data:
            if self._member is None and not self._begin(data):
                return
            member = self._member
            assert member is not None
            try:
                piece = member.decompress(data, PIECE_BYTES)
            except zlib.error as error:
                raise Damaged(str(error)[:200]) from None
            self._count(len(piece))
            if piece:
                yield piece
            if member.eof:
                data, self._member = member.unused_data, None
            else:
                data = member.unconsumed_tail

    def _begin(self, data: bytes) -> bool:
        """A next member, or the zeros that some writers pad with."""
        if self._trailing or (self._members and data[0] == 0):
            if data.strip(b"\0"):
                raise Damaged("Something else follows the compressed stream.")
            self._trailing = True
            return False
        if self._members and len(data) < 2:
            self._rest = data
            return False
        self._members += 1
        if self._members > MEMBERS_MAX:
            raise Bomb(f"More than {MEMBERS_MAX} members.")
        self._member = zlib.decompressobj(_GZIP)
        return True

    def _count(self, size: int) -> None:
        self.given += size
        if self.given > self._bytes_max:
            raise Bomb(f"Allowed: {self._bytes_max} bytes. Found: more, from {self.taken} bytes.")
        if self.given > RATIO_FREE_BYTES and self.given > self.taken * self._ratio_max:
            raise Bomb(
                f"Allowed: {self._ratio_max} times its size. Found: {self.given} bytes from {self.taken}."
            )


def first_inflated(data: bytes, size: int) -> tuple[bytes, bool]:
    """The first bytes of what the beginning of a gzip file holds, and whether that is all. Raises Damaged."""
    member = zlib.decompressobj(_GZIP)
    try:
        return member.decompress(data, size), member.eof
    except zlib.error as error:
        raise Damaged(str(error)[:200]) from None
