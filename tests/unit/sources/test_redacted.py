"""Upstream's names tell no secret, and upstream is still asked by its own."""

from __future__ import annotations

from contextlib import contextmanager

import msgspec
import pytest

from kfm.model.records import Found, Window
from kfm.model.redaction import Discretion
from kfm.sources.placement import StreamDownload
from kfm.sources.source_kinds import RedactedSource

pytestmark = pytest.mark.req("RS-13")

WINDOW = Window(start_ms=0, end_ms=1, spec="x")
PLAIN = Found(uri="file:a.csv", path="a.csv", media_type="text/csv", etag='"1"')
TELLING = Found(
    uri="https://h/sesame-open/b.csv",
    path="2026/sesame-open.csv",
    media_type="text/csv",
    etag='"sesame-open"',
    version=b"sesame-open".hex(),
)


class Upstream:
    def __init__(self) -> None:
        self.asked: list[Found] = []

    def discover(self, window):
        return [PLAIN, TELLING]

    @contextmanager
    def open(self, found, offset):
        self.asked.append(found)
        yield StreamDownload(offset, msgspec.structs.replace(found, size=3), iter([b"abc"]))


def discreet() -> tuple[RedactedSource, Upstream]:
    known = Discretion(lambda: ["sesame-open"])
    upstream = Upstream()
    return RedactedSource(upstream, known.hide), upstream


def test_what_is_found_is_shown_without_secrets():
    """Address, path, ETag and version; what has no secret is not changed."""
    plain, telling = discreet()[0].discover(WINDOW)
    assert plain == PLAIN
    assert telling.uri == "https://h/***/b.csv"
    assert telling.path == "2026/redacted.csv"
    assert telling.etag == '"***"'
    assert telling.version == "***"


def test_upstream_is_asked_by_its_own_names():
    """Bytes come from where they are; what is told about them is clean again."""
    source, upstream = discreet()
    for found in source.discover(WINDOW):
        with source.open(found, 0) as download:
            assert download.found == msgspec.structs.replace(found, size=3)
            assert list(download.chunks()) == [b"abc"]
    assert upstream.asked == [PLAIN, TELLING]
