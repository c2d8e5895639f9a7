"""Attributes of HDF5 files, read by hand: a group's own, and those of a dataset in it.

The C library would read them too, but it runs in our process, and a crafted file has crashed it often
enough. What is needed here is small: superblock, object headers, compact and dense storage of attributes and
links. All else is `HeaderUnread`.
"""

from __future__ import annotations

from collections.abc import Iterator

from kfm.ingest.operators.headers.facts import Bytes, HeaderInvalid, HeaderUnread
from kfm.ingest.operators.headers.hdf5_storage import Sizes, heap_objects
from kfm.ingest.operators.headers.hdf5_values import Value, attribute

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
            raise HeaderInvalid(f"It tells of {base + end} bytes; there are {self._file.size}.")
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
            raise HeaderInvalid("An object header does not go on where it says.")
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
