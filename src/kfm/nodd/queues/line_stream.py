"""Lines of a stream as messages: standard input, a pipe, a file."""

from __future__ import annotations

import itertools
import os
import select
from collections import deque
from collections.abc import Sequence
from typing import BinaryIO

import msgspec

from kfm.model.errors import BackendUnavailable
from kfm.ports import Clock, QueueMessage

MESSAGE_BYTES_MAX = 1024 * 1024  # what a queue carries at most
CHUNK_BYTES = 64 * 1024
VISIBILITY_MS = 60_000


class StreamQueue:
    """One message a line; blank lines are none.

    What was read can't be left in a stream. Messages that are put back, or not acknowledged in time, come
    again while this process lives; after that the stream has to be given again. A line that is too
    long arrives as its beginning, one byte longer than a message may be, so that it is refused by name.
    """

    def __init__(
        self, stream: BinaryIO, clock: Clock, *, name: str = "stdin", visibility_ms: int = VISIBILITY_MS
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._name = name
        self._visibility_ms = visibility_ms
        try:
            self._descriptor: int | None = stream.fileno()
        except (OSError, AttributeError):
            self._descriptor = None  # in memory: always ready
        self._numbers = itertools.count(1)
        self._lines = LineCutter()
        self._ready: deque[QueueMessage] = deque()
        self._out: dict[str, tuple[QueueMessage, int]] = {}  # and when it comes again
        self._at_end = False

    @property
    def name(self) -> str:
        return self._name

    @property
    def ended(self) -> bool:
        """Nothing more will come: all was read and acknowledged."""
        return self._at_end and not self._ready and not self._out

    def receive(self, limit: int, wait_ms: int) -> list[QueueMessage]:
        now_ms = self._clock.monotonic_ms()
        self.put_back([receipt for receipt, (_, again_ms) in self._out.items() if again_ms <= now_ms])
        until_ms = now_ms + wait_ms
        while len(self._ready) < limit and not self._at_end:
            # What is there is taken; waited is only for the first.
            left_ms = 0 if self._ready else max(0, until_ms - self._clock.monotonic_ms())
            chunk = self._chunk(left_ms)
            if chunk is None:
                break
            self._at_end = not chunk
            for line in self._lines.end() if self._at_end else self._lines.cut(chunk):
                number = str(next(self._numbers))
                self._ready.append(
                    QueueMessage(receipt=number, body=line, message_id=f"{self._name}:{number}")
                )
        handed = [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]
        if not handed and self._at_end:  # no busy loop at the end
            self._clock.sleep_ms(max(0, until_ms - self._clock.monotonic_ms()))
        again_ms = self._clock.monotonic_ms() + self._visibility_ms
        self._out.update((message.receipt, (message, again_ms)) for message in handed)
        return handed

    def acknowledge(self, receipts: Sequence[str]) -> list[str]:
        """Only the memory of this process changes: a stream does not repeat messages."""
        for receipt in receipts:
            self._out.pop(receipt, None)
        return []

    def put_back(self, receipts: Sequence[str]) -> None:
        for receipt in reversed(receipts):
            if receipt in self._out:
                message, _ = self._out.pop(receipt)
                self._ready.appendleft(msgspec.structs.replace(message, receives=message.receives + 1))

    def close(self) -> None:
        """The stream belongs to the caller, who closes it."""

    def _chunk(self, wait_ms: int) -> bytes | None:
        """The next bytes; none at the end; None if there are none yet."""
        try:
            if self._descriptor is None:
                return self._stream.read(CHUNK_BYTES)
            waiting = select.poll()
            waiting.register(self._descriptor, select.POLLIN)
            if not waiting.poll(wait_ms):
                return None
            return os.read(self._descriptor, CHUNK_BYTES)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise BackendUnavailable(
                f"{self._name} can't be read: {reason}.",
                remedy="Give the messages again, from the first that is not in the ledger or from the start.",
                transient=False,
            ) from None


class LineCutter:
    """Lines out of chunks, holding no more of one than is looked at."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def cut(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk ends."""
        *whole, rest = chunk.split(b"\n")
        lines = []
        for part in whole:
            lines += self._line(part)
        self._keep(rest)
        return lines

    def end(self) -> list[bytes]:
        """The last line, if it has no end of its own."""
        return self._line(b"")

    def _line(self, part: bytes) -> list[bytes]:
        self._keep(part)
        line = bytes(self._rest)
        self._rest.clear()
        # A long one is not blank, whatever its beginning is.
        return [line] if len(line) > MESSAGE_BYTES_MAX or line.strip() else []

    def _keep(self, part: bytes) -> None:
        self._rest += part[: MESSAGE_BYTES_MAX + 1 - len(self._rest)]
