"""Bodies: every byte that came is part of what is kept, or an error; and none takes for ever."""

from __future__ import annotations

import contextlib
import gzip
import zlib

import pytest

from kfm.model.errors import UpstreamUnavailable
from kfm.model.records import Window
from kfm.model.settings import Limits, SourceSettings
from kfm.sources.http import HttpSource
from kfm.sources.http_bodies import EMPTY_MEMBERS_MAX, STEP_BYTES, TransferPace, decoded
from tests.stand_ins import START_MS, FakeClock

DAY = Window(start_ms=START_MS, end_ms=START_MS + 86_400_000, spec="P1D")
ONE, TWO = b"site,flow\n" * 50, b"1,2\n" * 3000


class Told:
    """An answer of these chunks."""

    status = 200
    address = "http://h/x.csv"

    def __init__(self, chunks, **headers):
        self._chunks = chunks
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def chunks(self):
        return iter(self._chunks)


def inflated(data, step, encoding="gzip"):
    told = Told([data[at : at + step] for at in range(0, len(data), step)], content_encoding=encoding)
    return b"".join(decoded(told, told.chunks()))


@pytest.mark.req("UPD-16")
@pytest.mark.parametrize("step", [1, 7, 1000, 10**9])
def test_gzip_of_several_members(step):
    """Members that follow each other are one body, however the network cuts them."""
    assert inflated(gzip.compress(ONE) + gzip.compress(b"") + gzip.compress(TWO), step) == ONE + TWO


def test_members_larger_than_a_step():
    """A member that inflates to several steps does not swallow the next."""
    big = bytes(3 * STEP_BYTES + 5)
    assert inflated(gzip.compress(big) + gzip.compress(big) + gzip.compress(ONE), 10**9) == big + big + ONE


@pytest.mark.parametrize("step", [1, 10**9])
@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (gzip.compress(ONE) + b"garbage", "gzip"),
        (gzip.compress(ONE) + b"\0", "gzip"),
        (gzip.compress(ONE) + gzip.compress(TWO)[:-9], "gzip"),
        (gzip.compress(ONE) + b"\x1f", "gzip"),
        (zlib.compress(ONE) + zlib.compress(TWO), "deflate"),
    ],
    ids=["garbage", "padding", "cut", "begun", "deflate"],
)
def test_nothing_after_a_member_vanishes(data, encoding, step):
    """What follows and is no whole member is an error."""
    with pytest.raises(UpstreamUnavailable):
        inflated(data, step, encoding)


def test_endless_empty_members():
    """Members that hold nothing are not read for ever."""
    with pytest.raises(UpstreamUnavailable, match="nothing"):
        inflated(gzip.compress(b"") * (EMPTY_MEMBERS_MAX + 2), 100)


class Trickle:
    """A server without validators whose body comes byte by byte."""

    def __init__(self, clock, body, headers):
        self._clock, self._body, self._headers = clock, body, headers

    @contextlib.contextmanager
    def open(self, method, url, headers, timeout_ms, *, shown=None, secrets=(), allow=()):
        told = Told(self._slowly() if method == "GET" else [], **self._headers)
        yield told

    def _slowly(self):
        for byte in self._body:
            self._clock.passed_ms += 300
            yield bytes([byte])


@pytest.mark.parametrize("encoding", [{}, {"content_encoding": "gzip"}])
def test_trickling_body_ends_discovery(encoding):
    """A body that is read to know it must keep the same pace as one that is fetched."""
    clock = FakeClock()
    body = gzip.compress(b"") * 500 if encoding else b"x" * 10_000
    source = SourceSettings(id="src", dataset="ds", kind="http", url="http://h/x.csv")
    http = Trickle(clock, body, encoding)
    made = HttpSource(source, http, lambda call: call(2000), lambda value: value, Limits(), clock)
    with pytest.raises(UpstreamUnavailable, match="too slow") as caught:
        made.discover(DAY)
    assert caught.value.facts == {"transient": True, "cause": "timeout"}
    assert clock.passed_ms < 3000


def test_pace_allows_what_is_merely_slow():
    """A thousand bytes each second are enough, for however long it takes."""
    clock = FakeClock()
    pace = TransferPace(clock.monotonic_ms, 2000)
    for _ in range(1000):
        clock.passed_ms += 1000
        assert pace.keeps_up(1024)
