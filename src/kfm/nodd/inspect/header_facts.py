"""Facts of a file's header, and the errors of headers that can't be read."""

from __future__ import annotations

from typing import Protocol

from kfm.model.records import Record
from kfm.nodd.catalogue.geometry import Box, Footprint

BASIS = "the file's header"
STEPS_MAX = 32_768


class HeaderInvalid(Exception):
    """The header contradicts itself, its format or the size of its file."""


class HeaderUnread(Exception):
    """The header is beyond what is understood, or beyond what may be read."""


class HeaderFacts(Record, frozen=True):
    """Facts of a header, as far as it has them. Times are in ms since the epoch."""

    start_ms: int | None = None
    end_ms: int | None = None
    reference_ms: int | None = None
    created_ms: int | None = None
    platform: str | None = None
    file_name: str | None = None
    footprint: Footprint | None = None


class Bytes(Protocol):
    """Random access to a file; reading beyond its end, or too much, raises one of the two above."""

    @property
    def size(self) -> int: ...
    def at(self, offset: int, length: int) -> bytes: ...


class ReadBudget:
    """A limit on the steps of a header reader: a header may lead in circles, or repeat a large part."""

    def __init__(self, steps_max: int = STEPS_MAX) -> None:
        self._left = steps_max

    def spend(self, length: int) -> None:
        """One step, and one more for each kilobyte."""
        self._left -= 1 + length // 1024
        if self._left < 0:
            raise HeaderUnread("It is too long.")


class MemoryBytes:
    """Bytes in memory: the beginning of a file, or what is within a compressed one."""

    def __init__(self, data: bytes, size: int | None = None, *, steps_max: int = STEPS_MAX) -> None:
        self._data = data
        self._budget = ReadBudget(steps_max)
        self.size = len(data) if size is None else size  # of the whole file, of which we may have less

    def at(self, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0 or offset + length > self.size:
            raise HeaderInvalid(f"It points to byte {offset + length} of {self.size}.")
        if offset + length > len(self._data):
            raise HeaderUnread("It goes on too far into the file.")
        self._budget.spend(length)
        return self._data[offset : offset + length]


def box(west: float, south: float, east: float, north: float) -> Box | None:
    """A box if these can be one: finite and in range. Longitudes from -180 to 180, to about 10 cm."""
    if not (-90.0 <= south <= north <= 90.0 and -360.0 <= west <= 360.0 and -360.0 <= east <= 360.0):
        return None
    whole = abs(east - west) >= 360.0
    sides = (-180.0, 180.0) if whole else (_turned(west), _turned(east))
    return (round(sides[0], 6), round(south, 6), round(sides[1], 6), round(north, 6))


def _turned(longitude: float) -> float:
    if longitude > 180.0:
        return longitude - 360.0
    return longitude + 360.0 if longitude < -180.0 else longitude
