"""Walking through a file while it streams by: does its last part end where the file does?

A walker keeps a few bytes and a count of those to skip, however large the file is.
"""

from __future__ import annotations

from typing import Protocol

HEAD_BYTES = 16
GAP_BYTES_MAX = 64 * 1024  # between two messages; bulletins have headings there


class Walker(Protocol):
    def feed(self, data: bytes) -> None: ...
    def problem(self) -> str | None:
        """Asked at the end: why the file is not whole; None if it is."""


class GribWalker:
    """Messages with their length at the beginning and 7777 at the end, editions 1 and 2."""

    def __init__(self) -> None:
        self._kept = b""
        self._skip = 0
        self._within = False  # behind a message's head, before its 7777
        self._gap = 0
        self._found: str | None = None
        self.messages = 0

    def feed(self, data: bytes) -> None:
        if self._found is not None:
            return
        if self._skip >= len(data) and not self._kept:
            self._skip -= len(data)
            return
        data = self._kept + data
        at = self._skip
        while self._found is None:
            if self._within:
                if at + 4 > len(data):
                    break
                if data[at : at + 4] != b"7777":
                    self._found = f"Message {self.messages} does not end with 7777."
                    break
                at, self._within = at + 4, False
            start = data.find(b"GRIB", at)
            if start < 0:
                # What may be the beginning of a word stays.
                end = max(at, len(data) - 3)
                self._gap, at = self._gap + end - at, end
                self._check_gap()
                break
            self._gap += start - at
            at = start
            self._check_gap()
            if start + HEAD_BYTES > len(data) or self._found is not None:
                break
            at = self._enter(data, start)
        self._skip = max(0, at - len(data))
        self._kept = data[at:] if at < len(data) else b""

    def _enter(self, data: bytes, start: int) -> int:
        self.messages += 1
        self._gap = 0
        edition = data[start + 7]
        if edition == 2:
            length = int.from_bytes(data[start + 8 : start + 16], "big")
        elif edition == 1:
            length = int.from_bytes(data[start + 4 : start + 7], "big")
        else:
            length = 0
        if length < 20 + HEAD_BYTES * (edition == 2):
            self._found = f"Message {self.messages} has edition {edition} and {length} bytes."
            return start
        self._within = True
        return start + length - 4

    def _check_gap(self) -> None:
        if self._gap > GAP_BYTES_MAX:
            self._found = f"After message {self.messages} there is something else."

    def problem(self) -> str | None:
        if self._found is not None:
            return self._found
        if self.messages == 0:
            return "There is no whole message in it."
        if self._within:
            return f"Message {self.messages} is cut off."
        return f"After message {self.messages} there is half of another." if b"GRIB" in self._kept else None


class VolumeWalker:
    """NEXRAD: records with their length before them, where they are compressed.

    Older volumes are not compressed: radials of fixed size follow, and nothing marks their end.
    """

    def __init__(self, header_bytes: int) -> None:
        self._kept = b""
        self._skip = header_bytes
        self._plain = False
        self.records = 0

    def feed(self, data: bytes) -> None:
        if self._plain:
            return
        if self._skip >= len(data) and not self._kept:
            self._skip -= len(data)
            return
        data = self._kept + data
        at = self._skip
        while at + 7 <= len(data):
            if data[at + 4 : at + 7] != b"BZh":
                self._plain = True
                return
            self.records += 1
            at += 4 + abs(int.from_bytes(data[at : at + 4], "big", signed=True))
        self._skip = max(0, at - len(data))
        self._kept = data[at:] if at < len(data) else b""

    def problem(self) -> str | None:
        if self._plain:
            return f"After record {self.records} there is something else." if self.records else None
        if self._skip or self._kept:
            return f"Record {self.records} is cut off." if self._skip else "Half of a record is at its end."
        return None


def walker_for(kind: str | None) -> Walker | None:
    if kind in ("grib", "bulletin"):
        return GribWalker()
    if kind == "nexrad-l2":
        return VolumeWalker(24)
    if kind == "ldm":
        return VolumeWalker(0)
    return None
