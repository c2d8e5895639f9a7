"""HDF5 attributes, read by hand: groups, heaps, trees, values. Every length is checked."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from kfm.nodd.inspect.header_facts import Bytes, HeaderInvalid, HeaderUnread

SIGNATURE = b"\x89HDF\r\n\x1a\n"
MESSAGES_MAX = 4096
BLOCKS_MAX = 64
OBJECTS_MAX = 1024
CHUNK_BYTES_MAX = 1024 * 1024
_LINK_INFO, _LINK, _ATTRIBUTE, _CONTINUATION, _SYMBOLS, _ATTRIBUTE_INFO = 0x02, 0x06, 0x0C, 0x10, 0x11, 0x15


class Hdf5:
    """An opened file. `attributes()` are those of the root group, `attributes(name)` of an object in it."""

    def __init__(self, file: Bytes) -> None:
        self._file = file
        for base in (0, 512, 1024, 2048):
            if base + 96 <= file.size and file.at(base, 8) == SIGNATURE:
                break
        else:
            raise HeaderInvalid("It has no signature.")
        version = file.at(base + 8, 1)[0]
        if version in (0, 1):
            self._open_old(base, version)
        elif version in (2, 3):
            self._open_new(base)
        else:
            raise HeaderUnread(f"It is of version {version}.")

    def _open_new(self, base: int) -> None:
        head = self._file.at(base, 12)
        self._sizes = Sizes.checked(self._file, head[9], head[10])
        offset = self._sizes.offset
        place = [self._sizes.number(base + 12 + each * offset, offset) for each in range(4)]
        self._begin(place[0], place[2], place[3])

    def _open_old(self, base: int, version: int) -> None:
        head = self._file.at(base, 16)
        self._sizes = Sizes.checked(self._file, head[13], head[14])
        offset = self._sizes.offset
        first = base + (24 if version == 0 else 28)
        place = [self._sizes.number(first + each * offset, offset) for each in range(6)]
        self._begin(place[0], place[2], place[5])

    def _begin(self, base: int, end: int, root: int) -> None:
        if base + end > self._file.size:
            raise HeaderInvalid(f"It declares {base + end} bytes; there are {self._file.size}.")
        self._sizes = self._sizes.based(base)
        self._root = root

    def attributes(self, name: str | None = None) -> dict[str, Value]:
        address = self._root if name is None else self._child(name)
        found: dict[str, Value] = {}
        if address is None:
            return found
        for kind, body in self._messages(address):
            if kind == _ATTRIBUTE:
                _add(found, attribute(body, self._sizes))
            elif kind == _ATTRIBUTE_INFO:
                for each in self._dense(body, counter_bytes=2, key_at=0):
                    _add(found, attribute(each, self._sizes))
        return found

    def _child(self, name: str) -> int | None:
        wanted = name.encode()
        for kind, body in self._messages(self._root):
            if kind == _SYMBOLS:
                raise HeaderUnread("Its groups are of the old form.")
            links: Iterator[bytes] = iter(())
            if kind == _LINK:
                links = iter((body,))
            elif kind == _LINK_INFO:
                links = self._dense(body, counter_bytes=8, key_at=4)
            for link in links:
                target = self._hard_link(link, wanted)
                if target is not None:
                    return target
        return None

    def _hard_link(self, body: bytes, wanted: bytes) -> int | None:
        if len(body) < 4 or body[0] != 1:
            raise HeaderInvalid("A link is malformed.")
        flags, at = body[1], 2
        if flags & 8:
            if body[at] != 0:
                return None  # soft or external: not followed
            at += 1
        at += (8 if flags & 4 else 0) + (1 if flags & 0x10 else 0)
        width = 1 << (flags & 3)
        length = int.from_bytes(body[at : at + width], "little")
        at += width
        if body[at : at + length] != wanted:
            return None
        address = body[at + length : at + length + self._sizes.offset]
        if len(address) < self._sizes.offset:
            raise HeaderInvalid("A link is cut off.")
        return int.from_bytes(address, "little")

    def _dense(self, info: bytes, *, counter_bytes: int, key_at: int) -> Iterator[bytes]:
        """Many attributes or links are kept in a heap, and found by a tree."""
        if len(info) < 2:
            raise HeaderInvalid("A message is cut off.")
        at = 2 + (counter_bytes if info[1] & 1 else 0)
        offset = self._sizes.offset
        if len(info) < at + 2 * offset:
            raise HeaderInvalid("A message is cut off.")
        heap, tree = (int.from_bytes(info[at + each : at + each + offset], "little") for each in (0, offset))
        if heap == self._sizes.undefined:
            return iter(())
        return heap_objects(self._sizes, heap, tree, key_at=key_at, count_max=OBJECTS_MAX)

    # --- messages of an object header ---

    def _messages(self, address: int) -> Iterator[tuple[int, bytes]]:
        start = self._sizes.at(address, 16)
        if start[:4] == b"OHDR":
            yield from self._messages_new(address, start)
        elif start[0] == 1:
            yield from self._messages_old(address, start)
        else:
            raise HeaderInvalid("An object has no header.")

    def _messages_new(self, address: int, start: bytes) -> Iterator[tuple[int, bytes]]:
        if start[4] != 2:
            raise HeaderUnread(f"An object header of version {start[4]}.")
        flags = start[5]
        at = 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
        width = 1 << (flags & 3)
        length = int.from_bytes(self._sizes.at(address + at, width), "little")
        head = 6 if flags & 4 else 4
        blocks = [(address + at + width, length)]
        count = 0
        for index in range(BLOCKS_MAX):
            if index >= len(blocks):
                return
            data = self._chunk(*blocks[index], marked=index > 0)
            at = 0
            while at + head <= len(data):
                kind, size = data[at], int.from_bytes(data[at + 1 : at + 3], "little")
                body = data[at + head : at + head + size]
                count = _counted(count, body, size)
                at += head + size
                if kind == _CONTINUATION:
                    blocks.append(self._continued(body))
                elif not data[at - size - head + 3] & 2:  # shared messages are elsewhere
                    yield kind, body
        raise HeaderInvalid("An object header goes on and on.")

    def _messages_old(self, address: int, start: bytes) -> Iterator[tuple[int, bytes]]:
        blocks = [(address + 16, int.from_bytes(start[8:12], "little"))]
        count = 0
        for index in range(BLOCKS_MAX):
            if index >= len(blocks):
                return
            data = self._chunk(*blocks[index], marked=False)
            at = 0
            while at + 8 <= len(data):
                kind = int.from_bytes(data[at : at + 2], "little")
                size = int.from_bytes(data[at + 2 : at + 4], "little")
                body = data[at + 8 : at + 8 + size]
                count = _counted(count, body, size)
                if kind == _CONTINUATION:
                    blocks.append(self._continued(body))
                elif not data[at + 4] & 2:
                    yield kind, body
                at += 8 + size
        raise HeaderInvalid("An object header goes on and on.")

    def _chunk(self, address: int, length: int, *, marked: bool) -> bytes:
        if length > CHUNK_BYTES_MAX:
            raise HeaderInvalid(f"A part of an object header has {length} bytes.")
        data = self._sizes.at(address, length)
        if not marked:
            return data
        if data[:4] != b"OCHK" or len(data) < 8:
            raise HeaderInvalid("An object header does not continue where it points.")
        return data[4:-4]

    def _continued(self, body: bytes) -> tuple[int, int]:
        offset, length = self._sizes.offset, self._sizes.length
        if len(body) < offset + length:
            raise HeaderInvalid("A message is cut off.")
        return (
            int.from_bytes(body[:offset], "little"),
            int.from_bytes(body[offset : offset + length], "little"),
        )


def _counted(count: int, body: bytes, size: int) -> int:
    if len(body) < size or count >= MESSAGES_MAX:
        raise HeaderInvalid("A message is cut off, or there are too many.")
    return count + 1


def _add(found: dict[str, Value], pair: tuple[str, Value | None]) -> None:
    name, value = pair
    if value is not None and len(found) < OBJECTS_MAX:
        found[name] = value


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
            raise HeaderInvalid("A heap address is beyond its heap.")
        column = (offset - before) // size
        head = 5 + heap.sizes.offset + heap.offset_bytes
        entry = head + (row * heap.width + column) * heap.sizes.offset
        if heap.sizes.at(block, 4) != b"FHIB":
            raise HeaderInvalid("A heap has no block where one should be.")
        child = int.from_bytes(heap.sizes.at(block + entry, heap.sizes.offset), "little")
        if child == heap.sizes.undefined:
            raise HeaderInvalid("A heap address has no object.")
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
    raise HeaderInvalid("A heap address is beyond its heap.")


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


Value = str | int | float | tuple[int | float, ...]
TEXT_CHARS_MAX = 4096
NUMBERS_MAX = 16
NAME_BYTES_MAX = 1024
RANK_MAX = 32
_INTEGER, _FLOAT, _STRING, _VARIABLE = 0, 1, 3, 9


def attribute(body: bytes, sizes: Sizes) -> tuple[str, Value | None]:
    """(name, value), where the value is None if it is of a kind that is not needed here."""
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
