"""Global attributes of classic netCDF files (versions 1, 2 and 5)."""

from __future__ import annotations

import struct

from kfm.ingest.operators.headers.facts import Bytes, HeaderInvalid, HeaderUnread
from kfm.ingest.operators.headers.hdf5_values import NAME_BYTES_MAX, NUMBERS_MAX, TEXT_CHARS_MAX, Value

ENTRIES_MAX = 1024
_DIMENSIONS, _ATTRIBUTES, _CHAR = 10, 12, 2
_FORMS = {1: "b", 3: "h", 4: "i", 5: "f", 6: "d", 7: "B", 8: "H", 9: "I", 10: "q", 11: "Q"}


class _Reader:
    def __init__(self, file: Bytes) -> None:
        self._file = file
        self._at = 4
        self._wide = file.at(3, 1)[0] == 5

    def raw(self, length: int) -> bytes:
        """Padded to four bytes in the file."""
        data = self._file.at(self._at, length)
        self._at += (length + 3) // 4 * 4
        return data

    def skip(self, length: int) -> None:
        self._at += (length + 3) // 4 * 4
        if self._at > self._file.size + 3:
            raise HeaderInvalid("Its lists go beyond the file.")

    def tag(self) -> int:
        return int.from_bytes(self.raw(4), "big")

    def count(self) -> int:
        return int.from_bytes(self.raw(8 if self._wide else 4), "big")

    def name(self) -> str:
        length = self.count()
        if length > NAME_BYTES_MAX:
            raise HeaderInvalid("A name is too long.")
        return self.raw(length).decode("utf-8", "replace")

    def entries(self, tag: int) -> int:
        """How many entries a list has; an absent list is two zeros."""
        found, count = self.tag(), self.count()
        if found not in (0, tag) or (found == 0 and count != 0):
            raise HeaderInvalid("Its lists are malformed.")
        if count > ENTRIES_MAX:
            raise HeaderUnread("Its lists are too long.")
        return count


def attributes(file: Bytes) -> dict[str, Value]:
    if file.at(0, 3) != b"CDF" or file.at(3, 1)[0] not in (1, 2, 5):
        raise HeaderInvalid("It has no signature.")
    reader = _Reader(file)
    reader.count()  # of records
    for _ in range(reader.entries(_DIMENSIONS)):
        reader.name()
        reader.count()
    found: dict[str, Value] = {}
    for _ in range(reader.entries(_ATTRIBUTES)):
        name = reader.name()
        kind, count = reader.tag(), reader.count()
        value = _value(reader, kind, count)
        if value is not None:
            found[name] = value
    return found


def _value(reader: _Reader, kind: int, count: int) -> Value | None:
    if kind == _CHAR:
        if count > 4 * TEXT_CHARS_MAX:
            reader.skip(count)
            return None
        return reader.raw(count).split(b"\0")[0].decode("utf-8", "replace").rstrip()[:TEXT_CHARS_MAX]
    form = _FORMS.get(kind)
    if form is None:
        raise HeaderInvalid(f"An attribute is of type {kind}.")
    length = struct.calcsize(form) * count
    if not 1 <= count <= NUMBERS_MAX:
        reader.skip(length)
        return None
    numbers = struct.unpack(f">{count}{form}", reader.raw(length))
    return numbers[0] if count == 1 else numbers
