"""What a caller may take before it is answered: whoever says nothing, or never comes to an end, is let go."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES_MAX = 65_536  # of a head, beyond what came with its first bytes
ARRIVAL_SECONDS_MAX = 45.0  # of a request, from its first byte, or the connection, to its last byte
LOOK_SECONDS = 5.0
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Bounded(HttpToolsProtocol):
    """uvicorn's protocol, which by itself keeps any head, and waits for one for ever."""

    arrival_seconds_max = ARRIVAL_SECONDS_MAX
    look_seconds = LOOK_SECONDS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_bytes = 0
        self._in_head = False
        self._arriving_since: float | None = self.loop.time()
        self._next_look = self.loop.call_later(self.look_seconds, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._next_look.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        was_in_head = self._in_head
        super().data_received(data)
        if was_in_head and self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
                self.transport.write(_TOO_LARGE)
                self.transport.close()

    def on_message_begin(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        self._arriving_since = self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> Any:
        self._in_head = False
        return super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._arriving_since = None
        super().on_message_complete()

    def _look(self) -> None:
        """Where we do not read, it is not the caller who is slow."""
        since = self._arriving_since
        late = since is not None and self.loop.time() - since > self.arrival_seconds_max
        if late and not self.flow.read_paused:
            self.transport.close()
            return
        self._next_look = self.loop.call_later(self.look_seconds, self._look)
