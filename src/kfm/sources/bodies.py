"""Bodies of answers: whole or an error, and free of encodings that were not asked for."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from kfm.core.errors import UpstreamUnavailable
from kfm.ports import Response

_WINDOW = {"gzip": 31, "x-gzip": 31, "deflate": 15}
STEP_BYTES = 1024 * 1024


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


def decoded(response: Response, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Some servers compress although asked not to; what is kept is what the body stands for."""
    encoding = _encoding(response)
    if encoding == "identity":
        yield from chunks
        return
    if encoding not in _WINDOW:
        raise UpstreamUnavailable(f"The answer is encoded as {encoding[:40]!r}.", transient=False)
    inflate = zlib.decompressobj(_WINDOW[encoding])
    try:
        for chunk in chunks:
            rest = chunk
            while rest and not inflate.eof:  # in steps: a small body may stand for a huge one
                data = inflate.decompress(rest, STEP_BYTES)
                rest = inflate.unconsumed_tail
                if data:
                    yield data
        while data := inflate.decompress(inflate.unconsumed_tail, STEP_BYTES):
            yield data
    except zlib.error:
        raise UpstreamUnavailable("The compressed answer is damaged.", transient=True) from None
    if not inflate.eof:
        raise UpstreamUnavailable("The compressed answer ended early.", transient=True, cause="truncated")


def _encoding(response: Response) -> str:
    return response.headers.get("content-encoding", "").strip().lower() or "identity"
