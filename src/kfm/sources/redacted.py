"""Redaction of a source: names and validators without our secrets, whatever upstream calls its objects."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import msgspec

from kfm import ports
from kfm.model.records import Found, Window
from kfm.model.redaction import MASK
from kfm.sources.placement import StreamDownload

PATH_MASK = "redacted"  # some readers of published paths take stars for patterns


class RedactedSource:
    """Callers see the redacted names; upstream is asked by its own."""

    def __init__(self, inner: ports.Source, hide: Callable[[str], str]) -> None:
        self._inner = inner
        self._hide = hide
        self._own: dict[Found, Found] = {}  # cleaned → as upstream knows it

    def discover(self, window: Window) -> list[Found]:
        cleaned = []
        for found in self._inner.discover(window):
            shown = self._cleaned(found)
            if shown != found:
                self._own[shown] = found
            cleaned.append(shown)
        return cleaned

    @contextlib.contextmanager
    def open(self, found: Found, offset: int) -> Iterator[ports.Download]:
        own = self._own.get(found)
        if own is None:
            with self._inner.open(found, offset) as download:
                yield download
            return
        with self._inner.open(own, offset) as download:
            announced = self._cleaned(download.found)
            yield StreamDownload(download.offset, announced, download.chunks())

    def _cleaned(self, found: Found) -> Found:
        hide = self._hide
        return msgspec.structs.replace(
            found,
            uri=hide(found.uri),
            path=hide(found.path).replace(MASK, PATH_MASK),
            media_type=hide(found.media_type),
            etag=hide(found.etag) if found.etag else found.etag,
            version=hide(found.version) if found.version else found.version,
        )
