"""The footer of a Parquet file: read within bounds, and written again for the columns that are wanted.

The library that decodes Parquet takes every column and believes every number. So the footer is read here
first: what it promises is compared with the bytes that are there, and the decoder gets a footer that
names nothing but the columns of the contract.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import IO, Any, NamedTuple

from kfm.publish.contract.model import ContractLimits
from kfm.publish.contract.streams import FileProblem

MAGIC = b"PAR1"
FRAME_BYTES = 12
_DEPTH_MAX = 16
_VALUES_MAX = 2_000_000
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_WHOLE = (_I16, _I32, _I64)

# The fields of the format that are looked at; the others are passed over.
_SCHEMA, _ROWS, _GROUPS = 2, 3, 4
_REPETITION, _NAME, _CHILDREN = 3, 4, 5
_CHUNKS, _GROUP_ROWS = 1, 3
_ELSEWHERE, _META = 1, 3
_UNPACKED, _PACKED, _DATA_AT, _DICTIONARY_AT = 6, 7, 9, 11
# Left out of what the decoder gets: statistics, indexes, filters, keys, and the writer's own schema.
_KEPT_OF_FILE = (1, _SCHEMA, _ROWS, _GROUPS, 6)
_KEPT_OF_GROUP = (_CHUNKS, 2, _GROUP_ROWS, 6)
_KEPT_OF_CHUNK = (2, _META)
_KEPT_OF_META = (1, 2, 3, 4, 5, _UNPACKED, _PACKED, _DATA_AT, _DICTIONARY_AT)

# A struct is {field: (type, value)}, a list is (type, values), a map is its raw entries.
Struct = dict[int, tuple[int, Any]]


class Footer(NamedTuple):
    """What was found, and the footer for the decoder."""

    names: list[str]
    rows: int
    wanted: list[str]  # of the contract's columns those that are there, in the file's order
    data: bytes


def read_footer(spool: IO[bytes], columns: Sequence[str], limits: ContractLimits) -> Footer:
    """FileProblem if the file is none, or more would come out of it than is allowed."""
    size = spool.seek(0, os.SEEK_END)
    spool.seek(0)
    head = spool.read(4)
    spool.seek(max(0, size - 8))
    tail = spool.read(8)
    length = int.from_bytes(tail[:4], "little")
    if head != MAGIC or tail[4:] != MAGIC or size < FRAME_BYTES + length or not length:
        raise FileProblem("is not Parquet (it lacks the frame of such a file)")
    if length > limits.parquet_footer_bytes_max:
        raise FileProblem(f"has a Parquet footer larger than {limits.parquet_footer_bytes_max} bytes")
    spool.seek(size - 8 - length)
    try:
        return _footer(_Reader(spool.read(length)).struct(), columns, limits, size, size - 8 - length)
    except (KeyError, IndexError, TypeError, ValueError, struct.error) as error:
        raise FileProblem(f"is not Parquet (its footer can't be read: {type(error).__name__})") from None


def _footer(
    found: Struct, columns: Sequence[str], limits: ContractLimits, size: int, data_end: int
) -> Footer:
    elements, groups = _structs(found, _SCHEMA), _structs(found, _GROUPS)
    spans = _top_level(elements, limits.columns_max)
    names = [name for name, _, _ in spans]
    if len(set(names)) != len(names):
        raise FileProblem("has a column name that stands twice in its schema")
    leaves = sum(_whole(each, _CHILDREN, 0) == 0 for each in elements[1:])
    wanted = [(name, first, last) for name, first, last in spans if name in set(columns)]
    keep = _leaf_numbers(elements, wanted)
    rows = sum(_whole(group, _GROUP_ROWS) for group in groups)
    if rows != _whole(found, _ROWS) or any(_whole(group, _GROUP_ROWS) < 0 for group in groups):
        raise FileProblem("is not Parquet (its row groups have other rows than it declares)")
    if rows > max(limits.parquet_rows_free, size * limits.parquet_rows_per_byte_max):
        raise FileProblem(f"declares {rows} rows in {size} bytes, more than are read")
    for group in groups:
        chunks = _structs(group, _CHUNKS)
        if len(chunks) != leaves:
            raise FileProblem("is not Parquet (a row group has other columns than the schema)")
        _set(group, _CHUNKS, (_STRUCT, [_chunk(chunks[number], data_end) for number in keep]))
    unpacked = sum(
        _whole(chunk[_META][1], _UNPACKED) for group in groups for chunk in _structs(group, _CHUNKS)
    )
    if unpacked > max(limits.inflated_free_bytes, size * limits.inflated_ratio_max):
        raise FileProblem(f"declares {unpacked} bytes in {size}, more than are unpacked")
    root = dict(elements[0])
    _set(root, _CHILDREN, len(wanted))
    kept = [root, *(element for _, first, last in wanted for element in elements[first:last])]
    _set(found, _SCHEMA, (_STRUCT, kept))
    _set(found, _GROUPS, (_STRUCT, [_only(group, _KEPT_OF_GROUP) for group in groups]))
    body = _written(_only(found, _KEPT_OF_FILE))
    data = body + len(body).to_bytes(4, "little") + MAGIC
    return Footer(names, rows, [name for name, _, _ in wanted], data)


def _top_level(elements: list[Struct], columns_max: int) -> list[tuple[str, int, int]]:
    """Each column with the part of the schema that describes it: name, first, one past the last."""
    if not elements or len(elements) > columns_max + 1:
        raise FileProblem(f"has more than {columns_max} columns, or none")
    spans = []
    at = 1
    for _ in range(_whole(elements[0], _CHILDREN, 0)):
        first, open_children = at, 1
        while open_children:
            children = _whole(elements[at], _CHILDREN, 0)
            if children < 0:
                raise ValueError("a negative count")
            open_children += children - 1
            at += 1
        spans.append((_text(elements[first], _NAME), first, at))
    if at != len(elements):
        raise ValueError("a schema that ends too early")
    return spans


def _leaf_numbers(elements: list[Struct], wanted: list[tuple[str, int, int]]) -> list[int]:
    """The places of the wanted columns' chunks in a row group: those of their leaves."""
    number, places = 0, {}
    for at, element in enumerate(elements):
        if at and _whole(element, _CHILDREN, 0) == 0:
            places[at] = number
            number += 1
    return [places[at] for _, first, last in wanted for at in range(first, last) if at in places]


def _chunk(chunk: Struct, data_end: int) -> Struct:
    if _ELSEWHERE in chunk or _META not in chunk:
        raise FileProblem("has a column that is kept in another file, or is encrypted")
    meta = _only(chunk[_META][1], _KEPT_OF_META)
    begin = _whole(meta, _DATA_AT)
    if _DICTIONARY_AT in meta and 0 < _whole(meta, _DICTIONARY_AT) < begin:
        begin = _whole(meta, _DICTIONARY_AT)
    packed = _whole(meta, _PACKED)
    if begin < len(MAGIC) or packed < 0 or begin + packed > data_end or _whole(meta, _UNPACKED) < 0:
        raise FileProblem("is not Parquet (a column lies outside of the file)")
    kept = _only(chunk, _KEPT_OF_CHUNK)
    kept[_META] = (_STRUCT, meta)
    return kept


def _only(found: Struct, fields: Sequence[int]) -> Struct:
    return {field: found[field] for field in fields if field in found}


def _structs(found: Struct, field: int) -> list[Struct]:
    kind, (inner, values) = found[field]
    if kind != _LIST or (values and inner != _STRUCT):
        raise ValueError("not a list of structs")
    return list(values)


def _whole(found: Struct, field: int, default: int | None = None) -> int:
    if default is not None and field not in found:
        return default
    kind, value = found[field]
    if kind not in _WHOLE:
        raise ValueError("not a whole number")
    return int(value)


def _text(found: Struct, field: int) -> str:
    kind, value = found[field]
    if kind != _BINARY:
        raise ValueError("not text")
    return str(value.decode("utf-8"))


def _set(found: Struct, field: int, value: Any) -> None:
    found[field] = (found[field][0] if field in found else _I32, value)


# --- Thrift's compact protocol --------------------------------------------------------


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._values = 0

    def struct(self, depth: int = 0) -> Struct:
        if depth > _DEPTH_MAX:
            raise ValueError("nested too deeply")
        found: Struct = {}
        field = 0
        while head := self._byte():
            kind = head & 15
            field = field + (head >> 4) if head >> 4 else self._whole()
            found[field] = (kind, kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth))
        return found

    def _value(self, kind: int, depth: int) -> Any:
        self._values += 1
        if self._values > _VALUES_MAX:
            raise ValueError("too many values")
        if kind == _BYTE:
            return self._byte()
        if kind in _WHOLE:
            return self._whole()
        if kind == _DOUBLE:
            return self._taken(8)
        if kind == _BINARY:
            return self._taken(self._varint())
        if kind in (_LIST, _SET):
            return self._list(depth)
        if kind == _STRUCT:
            return self.struct(depth + 1)
        raise ValueError("an unknown type")  # Parquet has no maps

    def _list(self, depth: int) -> tuple[int, list[Any]]:
        head = self._byte()
        count, kind = head >> 4, head & 15
        if count == 15:
            count = self._varint()
        if count > len(self._data) - self._at:  # an element takes a byte at least
            raise ValueError("a list longer than the footer")
        kind_of_one = _BYTE if kind in (_TRUE, _FALSE) else kind
        return kind, [self._value(kind_of_one, depth + 1) for _ in range(count)]

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _taken(self, count: int) -> bytes:
        self._at += count
        if self._at > len(self._data):
            raise ValueError("it ends too early")
        return self._data[self._at - count : self._at]

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError("a number longer than 64 bits")

    def _whole(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)


def _written(found: Struct) -> bytes:
    out = bytearray()
    before = 0
    for field in sorted(found):
        kind, value = found[field]
        if kind in (_TRUE, _FALSE):
            kind = _TRUE if value else _FALSE
        if 0 < field - before < 16:
            out.append((field - before) << 4 | kind)
        else:
            out.append(kind)
            out += _varint(field << 1)
        before = field
        if kind not in (_TRUE, _FALSE):
            out += _one_written(kind, value)
    out.append(0)
    return bytes(out)


def _one_written(kind: int, value: Any) -> bytes:
    if kind == _BYTE:
        return bytes([value])
    if kind in _WHOLE:
        return _varint((value << 1) ^ (value >> 63))
    if kind == _DOUBLE:
        return bytes(value)
    if kind == _BINARY:
        return _varint(len(value)) + bytes(value)
    if kind == _STRUCT:
        return _written(value)
    inner, values = value
    head = (
        bytes([len(values) << 4 | inner])
        if len(values) < 15
        else bytes([0xF0 | inner]) + _varint(len(values))
    )
    one = _BYTE if inner in (_TRUE, _FALSE) else inner
    return head + b"".join(_one_written(one, each) for each in values)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
