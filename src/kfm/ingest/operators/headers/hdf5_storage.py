"""Where HDF5 keeps many small things: fractal heaps, the trees that index them, and the heap of texts."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kfm.ingest.operators.headers.facts import Bytes, HeaderInvalid, HeaderUnread

DEPTH_MAX = 8
NODE_BYTES_MAX = 1024 * 1024
COLLECTION_BYTES_MAX = 1024 * 1024
OBJECT_BYTES_MAX = 64 * 1024
ROWS_MAX = 64


class Sizes(msgspec.Struct, frozen=True):
    """A file, how wide its addresses and lengths are, and where its addresses begin."""

    file: Bytes
    offset: int
    length: int
    base: int = 0

    @classmethod
    def checked(cls, file: Bytes, offset: int, length: int) -> Sizes:
        if offset not in (4, 8) or length not in (4, 8):
            raise HeaderInvalid(f"Addresses of {offset} bytes, lengths of {length}.")
        return cls(file, offset, length)

    def based(self, base: int) -> Sizes:
        return msgspec.structs.replace(self, base=base)

    @property
    def undefined(self) -> int:
        return int((1 << (8 * self.offset)) - 1)

    def at(self, address: int, length: int) -> bytes:
        return self.file.at(self.base + address, length)

    def number(self, at: int, width: int) -> int:
        return int.from_bytes(self.file.at(at, width), "little")


class _Fields:
    """Little-endian fields, one after the other."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    def take(self, width: int) -> int:
        value = int.from_bytes(self._data[self._at : self._at + width], "little")
        self._at += width
        return value


class _Heap(msgspec.Struct, frozen=True):
    sizes: Sizes
    id_bytes: int
    offset_bytes: int
    length_bytes: int
    width: int
    start_bytes: int
    direct_bytes_max: int
    root: int
    rows: int  # of the root block; 0: it is a single block of data


def heap_objects(sizes: Sizes, heap_at: int, tree_at: int, *, key_at: int, count_max: int) -> Iterator[bytes]:
    """Every object that the tree names; a record has the object's id at `key_at`."""
    heap = _heap(sizes, heap_at)
    for number, record in enumerate(_records(sizes, tree_at)):
        if number >= count_max:
            raise HeaderUnread("It keeps too many things.")
        key = record[key_at : key_at + heap.id_bytes]
        if len(key) < heap.id_bytes:
            raise HeaderInvalid("A tree's records are too short.")
        yield _object(heap, key)


def _heap(sizes: Sizes, at: int) -> _Heap:
    length = 22 + 12 * sizes.length + 3 * sizes.offset
    data = sizes.at(at, length)
    if data[:4] != b"FRHP" or data[4] != 0:
        raise HeaderInvalid("There is no heap where one should be.")
    fields = _Fields(data, 5)
    id_bytes, filters, _flags, managed_max = (fields.take(width) for width in (2, 2, 1, 4))
    if filters:
        raise HeaderUnread("A heap is compressed.")
    for width in (sizes.length, sizes.offset, sizes.length, sizes.offset, *(sizes.length,) * 8):
        fields.take(width)
    width, start, direct_max = fields.take(2), fields.take(sizes.length), fields.take(sizes.length)
    bits, _begun, root, rows = fields.take(2), fields.take(2), fields.take(sizes.offset), fields.take(2)
    if not (
        1 <= width <= 1024
        and _is_power(start)
        and _is_power(direct_max)
        and start <= direct_max
        and 8 <= bits <= 64
        and rows <= ROWS_MAX
        and 2 <= id_bytes <= 64
    ):
        raise HeaderInvalid("A heap's header is malformed.")
    return _Heap(
        sizes=sizes,
        id_bytes=id_bytes,
        offset_bytes=(bits + 7) // 8,
        length_bytes=min(_bytes_for(direct_max), _bytes_for(managed_max)),
        width=width,
        start_bytes=start,
        direct_bytes_max=direct_max,
        root=root,
        rows=rows,
    )


def _object(heap: _Heap, key: bytes) -> bytes:
    kind = key[0] >> 4 & 3
    if kind == 2:  # so small that it stands in the id itself
        return key[1 : 2 + (key[0] & 0x0F)]
    if kind != 0:
        raise HeaderUnread("A thing is too large for its heap.")
    fields = _Fields(key, 1)
    offset, length = fields.take(heap.offset_bytes), fields.take(heap.length_bytes)
    if length > OBJECT_BYTES_MAX:
        raise HeaderUnread("An attribute is too long.")
    return heap.sizes.at(_address(heap, offset), length)


def _address(heap: _Heap, offset: int) -> int:
    """From a place in the heap to a place in the file: through blocks of blocks, if need be."""
    block, rows = heap.root, heap.rows
    if rows == 0:
        return block + offset
    for _ in range(DEPTH_MAX):
        row, before, size = _row(heap, offset)
        if row >= rows:
            raise HeaderInvalid("A thing is said to be beyond its heap.")
        column = (offset - before) // size
        head = 5 + heap.sizes.offset + heap.offset_bytes
        entry = head + (row * heap.width + column) * heap.sizes.offset
        if heap.sizes.at(block, 4) != b"FHIB":
            raise HeaderInvalid("A heap has no block where one should be.")
        child = int.from_bytes(heap.sizes.at(block + entry, heap.sizes.offset), "little")
        if child == heap.sizes.undefined:
            raise HeaderInvalid("A thing is said to be where nothing is.")
        offset -= before + column * size
        if size <= heap.direct_bytes_max:
            return child + offset
        block, rows = child, (size // (heap.start_bytes * heap.width)).bit_length()
    raise HeaderUnread("A heap is too deep.")


def _row(heap: _Heap, offset: int) -> tuple[int, int, int]:
    """(row, where it begins, size of its blocks): sizes double with each row from the second on."""
    before, size = 0, heap.start_bytes
    for row in range(ROWS_MAX):
        if row > 1:
            size *= 2
        if offset < before + size * heap.width:
            return row, before, size
        before += size * heap.width
    raise HeaderInvalid("A thing is said to be beyond its heap.")


def _is_power(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def _bytes_for(number: int) -> int:
    return max(1, (number.bit_length() + 7) // 8)


# --- trees ---------------------------------------------------------------------------


class _Tree(msgspec.Struct, frozen=True):
    sizes: Sizes
    node_bytes: int
    record_bytes: int
    # For each depth: the bytes of a child's count, and of the count of all below it.
    counts: tuple[tuple[int, int], ...]


def _records(sizes: Sizes, at: int) -> Iterator[bytes]:
    data = sizes.at(at, 18 + sizes.offset + sizes.length)
    if data[:4] != b"BTHD" or data[4] != 0:
        raise HeaderInvalid("There is no tree where one should be.")
    fields = _Fields(data, 6)
    node, record, depth = fields.take(4), fields.take(2), fields.take(2)
    fields.take(2)
    root, count = fields.take(sizes.offset), fields.take(2)
    if not 16 <= node <= NODE_BYTES_MAX or not 1 <= record <= node - 10:
        raise HeaderInvalid("A tree's header is malformed.")
    if depth > DEPTH_MAX:
        raise HeaderUnread("A tree is too deep.")
    if root == sizes.undefined or count == 0:
        return
    tree = _Tree(sizes, node, record, _counts(sizes, node, record, depth))
    yield from _node(tree, root, count, depth)


def _counts(sizes: Sizes, node: int, record: int, depth: int) -> tuple[tuple[int, int], ...]:
    most = (node - 10) // record
    width, below = _bytes_for(most), most
    found = [(width, 0)]
    for level in range(1, depth + 1):
        total_width = 0 if level == 1 else _bytes_for(below)
        found.append((width, total_width))
        pointer = sizes.offset + width + total_width
        most_here = (node - 10 - pointer) // (record + pointer)
        below = (most_here + 1) * below + most_here
    return tuple(found)


def _node(tree: _Tree, at: int, count: int, depth: int) -> Iterator[bytes]:
    size = tree.record_bytes
    if 10 + count * size > tree.node_bytes:
        raise HeaderInvalid("A tree has a node with too many records.")
    width, total_width = tree.counts[depth]
    pointers = (count + 1) * (tree.sizes.offset + width + total_width) if depth else 0
    data = tree.sizes.at(at, 6 + count * size + pointers)
    if data[:4] != (b"BTIN" if depth else b"BTLF"):
        raise HeaderInvalid("A tree has no node where one should be.")
    for each in range(count):
        yield data[6 + each * size : 6 + (each + 1) * size]
    fields = _Fields(data, 6 + count * size)
    for _ in range(count + 1 if depth else 0):
        child, records = fields.take(tree.sizes.offset), fields.take(width)
        fields.take(total_width)
        yield from _node(tree, child, records, depth - 1)


# --- the heap of texts ---------------------------------------------------------------


def global_heap_object(sizes: Sizes, at: int, number: int) -> bytes | None:
    head = sizes.at(at, 8 + sizes.length)
    if head[:4] != b"GCOL" or head[4] != 1:
        raise HeaderInvalid("There is no heap of texts where one should be.")
    size = int.from_bytes(head[8:], "little")
    if size > COLLECTION_BYTES_MAX:
        raise HeaderUnread("A heap of texts is too large.")
    place, end = at + 8 + sizes.length, at + size
    while place + 8 + sizes.length <= end:
        entry = sizes.at(place, 8 + sizes.length)
        index, length = int.from_bytes(entry[:2], "little"), int.from_bytes(entry[8:], "little")
        if index == 0 or place + 8 + sizes.length + length > end:
            return None
        if index == number:
            if length > OBJECT_BYTES_MAX:
                raise HeaderUnread("A text is too long.")
            return sizes.at(place + 8 + sizes.length, length)
        place += 8 + sizes.length + (length + 7) // 8 * 8
    return None
