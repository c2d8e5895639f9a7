"""Response bodies: whole or an error, decoded, spooled, and not slower than a minimum pace."""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO

from kfm.model.errors import UpstreamUnavailable
from kfm.ports import Response

_WINDOW = {"gzip": 31, "x-gzip": 31, "deflate": 15}
STEP_BYTES = 1024 * 1024
EMPTY_MEMBERS_MAX = 1000  # they cost time and bring nothing


def is_encoded(response: Response) -> bool:
    return _encoding(response) != "identity"


def whole(response: Response, shown: str) -> Iterator[bytes]:
    """The raw bytes; an error where fewer or more came than were announced."""
    announced = response.headers.get("content-length", "")
    received = 0
    for chunk in response.chunks():
        received += len(chunk)
        yield chunk
    if announced.isascii() and announced.isdigit() and received != int(announced):
        raise UpstreamUnavailable(
            f"{shown} announced {announced} bytes and sent {received}.", transient=True, cause="truncated"
        )


def paced(chunks: Iterator[bytes], pace: TransferPace, shown: str) -> Iterator[bytes]:
    """The same bytes; an error where they trickle."""
    for chunk in chunks:
        yield chunk
        if not pace.keeps_up(len(chunk)):
            raise UpstreamUnavailable(f"{shown} is too slow.", transient=True, cause="timeout")


def decoded(response: Response, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Some servers compress although asked not to; what is kept is what the body stands for."""
    encoding = _encoding(response)
    if encoding == "identity":
        yield from chunks
        return
    if encoding not in _WINDOW:
        raise UpstreamUnavailable(f"The answer is encoded as {encoding[:40]!r}.", transient=False)
    try:
        yield from _inflated(encoding, chunks)
    except zlib.error:
        raise UpstreamUnavailable("The compressed answer is damaged.", transient=True) from None


def _inflated(encoding: str, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Gzip may come as several members one after the other; every byte belongs to one or is an error."""
    inflate = zlib.decompressobj(_WINDOW[encoding])
    empty, produced = 0, False
    for chunk in chunks:
        rest = chunk
        while rest:
            if inflate.eof:
                if encoding == "deflate":
                    raise UpstreamUnavailable("Something follows the compressed answer.", transient=True)
                empty = 0 if produced else empty + 1
                if empty > EMPTY_MEMBERS_MAX:
                    raise UpstreamUnavailable("The compressed answer holds nothing.", transient=False)
                inflate, produced = zlib.decompressobj(_WINDOW[encoding]), False
            data = inflate.decompress(rest, STEP_BYTES)  # in steps: a small body may stand for a huge one
            rest = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
            if data:
                produced = True
                yield data
    while not inflate.eof and (data := inflate.decompress(b"", STEP_BYTES)):
        yield data
    if not inflate.eof:
        raise UpstreamUnavailable("The compressed answer ended early.", transient=True, cause="truncated")


def _encoding(response: Response) -> str:
    return response.headers.get("content-encoding", "").strip().lower() or "identity"


SLOWEST_BYTES_PER_SECOND = 1024


class TransferPace:
    """A body that trickles would hold a run for ever: each span of the timeout must bring something."""

    def __init__(self, monotonic_ms: Callable[[], int], timeout_ms: int) -> None:
        self._monotonic_ms = monotonic_ms
        self._timeout_ms = timeout_ms
        self._since_ms = monotonic_ms()
        self._bytes = 0

    def keeps_up(self, amount: int) -> bool:
        self._bytes += amount
        passed_ms = self._monotonic_ms() - self._since_ms
        if passed_ms < self._timeout_ms:
            return True
        enough = self._bytes * 1000 >= SLOWEST_BYTES_PER_SECOND * passed_ms
        self._since_ms += passed_ms
        self._bytes = 0
        return enough


CHUNK_BYTES = 1024 * 1024
SPOOL_BYTES_MAX = 1024 * 1024 * 1024


class Spool:
    """Address → bytes, up to a limit; what does not fit is simply fetched again."""

    def __init__(self, bytes_max: int = SPOOL_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._kept: dict[str, tuple[IO[bytes], int]] = {}

    def new_file(self) -> IO[bytes]:
        return tempfile.TemporaryFile()

    def keep(self, key: str, file: IO[bytes], size: int) -> None:
        self.drop(key)
        if self._bytes + size > self._bytes_max:
            file.close()
            return
        file.flush()
        self._kept[key] = (file, size)
        self._bytes += size

    def drop(self, key: str) -> None:
        file, size = self._kept.pop(key, (None, 0))
        self._bytes -= size
        if file is not None:
            file.close()

    def has(self, key: str) -> bool:
        return key in self._kept

    def chunks(self, key: str, offset: int) -> Iterator[bytes]:
        descriptor = self._kept[key][0].fileno()
        while data := os.pread(descriptor, CHUNK_BYTES, offset):
            offset += len(data)
            yield data
