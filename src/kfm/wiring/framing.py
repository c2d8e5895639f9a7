"""Messages between a pass and its child processes: JSON, each after its length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

LENGTH_BYTES = 8


def framed(message: dict[str, Any]) -> bytes:
    body = msgspec.json.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


class Frames:
    """Puts messages together from the pieces in which they come."""

    def __init__(self) -> None:
        self._data = bytearray()

    def fed(self, data: bytes) -> Iterator[dict[str, Any]]:
        self._data += data
        while len(self._data) >= LENGTH_BYTES:
            end = LENGTH_BYTES + int.from_bytes(self._data[:LENGTH_BYTES], "big")
            if len(self._data) < end:
                return
            body = bytes(self._data[LENGTH_BYTES:end])
            del self._data[:end]
            message: dict[str, Any] = msgspec.json.decode(body)
            yield message
