"""One attribute of an HDF5 file: text or a few numbers. Other types are left out."""

from __future__ import annotations

import struct

from kfm.ingest.operators.headers.facts import HeaderInvalid
from kfm.ingest.operators.headers.hdf5_storage import Sizes, global_heap_object

Value = str | int | float | tuple[int | float, ...]
TEXT_CHARS_MAX = 4096
NUMBERS_MAX = 16
NAME_BYTES_MAX = 1024
RANK_MAX = 32
_INTEGER, _FLOAT, _STRING, _VARIABLE = 0, 1, 3, 9


def attribute(body: bytes, sizes: Sizes) -> tuple[str, Value | None]:
    """(name, value), where the value is None if it is of a kind that nobody here asks for."""
    if len(body) < 9 or body[0] not in (1, 2, 3):
        raise HeaderInvalid("An attribute is malformed.")
    version, flags = body[0], body[1] if body[0] > 1 else 0
    lengths = struct.unpack("<3H", body[2:8])
    at = 9 if version == 3 else 8
    parts = []
    for length in lengths:
        part = body[at : at + length]
        if len(part) < length:
            raise HeaderInvalid("An attribute is cut off.")
        parts.append(part)
        at += (length + 7) // 8 * 8 if version == 1 else length
    if len(parts[0]) > NAME_BYTES_MAX:
        raise HeaderInvalid("An attribute's name is too long.")
    name = parts[0].split(b"\0")[0].decode("utf-8", "replace")
    if flags & 3:  # its type or shape is kept elsewhere
        return name, None
    return name, _value(parts[1], _count(parts[2], sizes.length), body[at:], sizes)


def _count(space: bytes, length_bytes: int) -> int:
    """How many elements: 1 for a scalar, 0 for none."""
    if len(space) < 4 or space[0] not in (1, 2) or space[1] > RANK_MAX:
        raise HeaderInvalid("An attribute's shape is malformed.")
    if space[0] == 2 and space[3] == 2:
        return 0
    at, count = (8 if space[0] == 1 else 4), 1
    for _ in range(space[1]):
        count *= int.from_bytes(space[at : at + length_bytes], "little")
        at += length_bytes
    if at > len(space):
        raise HeaderInvalid("An attribute's shape is cut off.")
    return count


def _value(kind: bytes, count: int, data: bytes, sizes: Sizes) -> Value | None:
    if len(kind) < 8:
        raise HeaderInvalid("An attribute's type is cut off.")
    family, bits, size = kind[0] & 0x0F, kind[1], int.from_bytes(kind[4:8], "little")
    if count < 1 or size < 1:
        return None
    if family == _STRING:
        text = data[:size] if count == 1 else data[: size * count] if size == 1 else b""
        return _text(text) if text else None
    if family == _VARIABLE:
        return _variable(bits, data, sizes) if count == 1 else None
    if count > NUMBERS_MAX or family not in (_INTEGER, _FLOAT):
        return None
    if len(data) < size * count:
        raise HeaderInvalid("An attribute's value is cut off.")
    order = "big" if bits & 1 else "little"
    numbers = tuple(
        _number(family, size, bits, data[each * size : (each + 1) * size], order) for each in range(count)
    )
    if any(each is None for each in numbers):
        return None
    known = tuple(each for each in numbers if each is not None)
    return known[0] if count == 1 else known


def _number(family: int, size: int, bits: int, data: bytes, order: str) -> int | float | None:
    if family == _INTEGER:
        if size > 8:
            return None
        return int.from_bytes(data, "big" if order == "big" else "little", signed=bool(bits & 8))
    form = {2: "e", 4: "f", 8: "d"}.get(size)
    if form is None:
        return None
    return float(struct.unpack((">" if order == "big" else "<") + form, data)[0])


def _variable(bits: int, data: bytes, sizes: Sizes) -> str | None:
    """Text of any length stands in a heap: (length, address, number)."""
    if bits & 0x0F != 1:
        return None
    end = 4 + sizes.offset
    if len(data) < end + 4:
        raise HeaderInvalid("An attribute's value is cut off.")
    length, number = int.from_bytes(data[:4], "little"), int.from_bytes(data[end : end + 4], "little")
    if length == 0:
        return ""
    found = global_heap_object(sizes, int.from_bytes(data[4:end], "little"), number)
    return None if found is None else _text(found[:length])


def _text(data: bytes) -> str:
    return data.split(b"\0")[0][: 4 * TEXT_CHARS_MAX].decode("utf-8", "replace").rstrip()[:TEXT_CHARS_MAX]
