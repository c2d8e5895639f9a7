"""A file at upstream as bytes to be read here and there: pages fetched as needed, within a budget."""

from __future__ import annotations

from kfm.nodd.inspect.header_facts import HeaderInvalid, HeaderUnread, ReadBudget
from kfm.ports import Upstream

PAGE_BYTES = 64 * 1024


class RangedFile:
    """A file at upstream, read in pages."""

    def __init__(
        self,
        upstream: Upstream,
        uri: str,
        size: int,
        *,
        bytes_max: int,
        reads_max: int,
        page: int = PAGE_BYTES,
    ) -> None:
        self._upstream = upstream
        self._uri = uri
        self._bytes_left = bytes_max
        self._reads_left = reads_max
        self._bytes_max = bytes_max
        self._budget = ReadBudget()
        self._page = page
        self._pages: dict[int, bytes] = {}
        self.size = size

    def at(self, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0 or offset + length > self.size:
            raise HeaderInvalid(f"It points to byte {offset + length} of {self.size}.")
        if length > self._bytes_max:
            raise HeaderUnread("It is too long.")
        self._budget.spend(length)
        first, last = offset // self._page, (offset + max(length, 1) - 1) // self._page
        if first == last:
            start = offset - first * self._page
            return self._fetched(first)[start : start + length]
        data = b"".join(self._fetched(number) for number in range(first, last + 1))
        start = offset - first * self._page
        return data[start : start + length]

    def _fetched(self, number: int) -> bytes:
        found = self._pages.get(number)
        if found is not None:
            return found
        start = number * self._page
        length = min(self._page, self.size - start)
        self._reads_left -= 1
        self._bytes_left -= length
        if self._reads_left < 0 or self._bytes_left < 0:
            raise HeaderUnread("It is spread over too much of the file.")
        data = self._upstream.read(self._uri, start, length) if length > 0 else b""
        if len(data) < length:
            raise HeaderInvalid(f"The file ends at byte {start + len(data)}, not {self.size}.")
        self._pages[number] = data
        return data
