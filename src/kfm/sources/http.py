"""One resource, or the pages of one, over HTTP.

A validator (ETag or Last-Modified) from HEAD identifies the content; where there is none, or it may hold
for two contents, the body is read and its SHA-256 does. Bodies that discovery read are kept, so that they
need not come twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import IO, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import UNSET, UnsetType

from kfm.model.errors import ChecksumMismatch, LimitExceeded, UpstreamUnavailable
from kfm.model.records import Found, Window
from kfm.model.settings import Limits, SourceSettings
from kfm.model.times import is_strong_date, parse_http_date
from kfm.ports import Clock, Guard, Http, Response
from kfm.sources.http_address import Address, Resolve
from kfm.sources.http_bodies import Spool, TransferPace, decoded, is_encoded, paced, whole
from kfm.sources.http_pages import SourcePage, following
from kfm.sources.placement import (
    StreamDownload,
    media_type,
    place_fields,
    published_path,
    settled,
    suffix_for,
)

_BUSY = frozenset({408, 429, 500, 502, 503, 504})
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)", re.ASCII)


class _Head(NamedTuple):
    headers: Mapping[str, str]
    origin: str | UnsetType


class HttpSource:
    answers_empty = True  # nothing is found only where upstream has answered so: 204, or a list of nothing

    def __init__(
        self, source: SourceSettings, http: Http, guard: Guard, resolve: Resolve, limits: Limits, clock: Clock
    ) -> None:
        self._source = source
        self._http = http
        self._guard = guard
        self._limits = limits
        self._clock = clock
        self._address = Address(source, resolve)
        self._spool = Spool()
        self._real: dict[str, str] = {}  # shown address → the one that it stands for

    def discover(self, window: Window) -> list[Found]:
        url = self._address.first(place_fields(self._source, window))
        if self._source.pagination is None:
            found = [one for one in [self._probe(url, window)] if one is not None]
        else:
            found = list(self._walk(url, window))
        return settled(self._source.id, found, self._limits)

    @contextlib.contextmanager
    def open(self, found: Found, offset: int) -> Iterator[StreamDownload]:
        if self._spool.has(found.uri):
            yield StreamDownload(offset, found, self._spool.chunks(found.uri, offset))
            return
        url = self._real.get(found.uri, found.uri)
        ranged = _resumable(found) and offset > 0
        with contextlib.ExitStack() as stack:
            timeout_ms, more = self._limits.call_timeout_ms, _range_headers(found, offset) if ranged else {}
            response = stack.enter_context(self._asked("GET", url, timeout_ms, more))
            if ranged and (
                response.status == 416 or (response.status == 206 and not _continues(response, found, offset))
            ):
                stack.close()
                response = stack.enter_context(self._asked("GET", url, timeout_ms))
            if response.status not in (200, 206) or (response.status == 206 and not ranged):
                raise self._refusal(url, response)
            self._same_content(found, response)
            begin = offset if response.status == 206 else 0
            length = _length(response.headers)
            size = None if is_encoded(response) else found.size if length is None else begin + length
            announced = msgspec.structs.replace(found, size=size, origin=self._origin(url, response))
            yield StreamDownload(begin, announced, self._body(response, url, timeout_ms))

    # --- discovery ---

    def _probe(self, url: str, window: Window) -> Found | None:
        head = self._guard(lambda timeout_ms: self._head(url, timeout_ms))
        headers = {} if head is None else head.headers
        if head is not None and (headers.get("etag") or is_strong_date(headers, self._clock.now_ms())):
            name = _name(url, headers)
            return Found(
                uri=self._show(url),
                path=published_path(self._source, window, name),
                media_type=media_type(name, headers.get("content-type")),
                size=None if headers.get("content-encoding") else _length(headers),
                etag=headers.get("etag"),
                modified_ms=parse_http_date(headers.get("last-modified")),
                origin=head.origin,
            )
        page = self._read(url, number=1)
        if page is None:
            return None
        return self._keep(page, self._show(url), _name(url, page.headers), window)

    def _head(self, url: str, timeout_ms: int) -> _Head | None:
        """The headers of the resource; None where HEAD does not tell."""
        with self._asked("HEAD", url, timeout_ms) as response:
            if response.status in _BUSY:
                raise self._refusal(url, response)
            return _Head(response.headers, self._origin(url, response)) if response.status == 200 else None

    def _walk(self, url: str, window: Window) -> Iterator[Found]:
        pagination = self._source.pagination
        assert pagination is not None
        total = 0
        for page in following(pagination, url, self._read, self._address.follow, self._address.shown):
            total += page.size
            if total > self._limits.run_bytes_max:
                shown = self._address.shown(url)
                raise LimitExceeded(f"The pages of {shown} hold too much (limits.run_bytes_max).")
            stem, dot, suffix = _name(url, page.headers).rpartition(".")
            name = f"{stem}-{page.number:04d}.{suffix}" if dot else f"{suffix}-{page.number:04d}"
            # Cursors may look like secrets and be masked: the number keeps the addresses apart.
            yield self._keep(page, self._show(page.url, f"#page={page.number}"), name, window)

    def _read(self, url: str, number: int) -> SourcePage | None:
        """A whole body, hashed; None for "no content"."""
        return self._guard(lambda timeout_ms: self._read_once(url, number, timeout_ms))

    def _read_once(self, url: str, number: int, timeout_ms: int) -> SourcePage | None:
        with self._asked("GET", url, timeout_ms) as response:
            if response.status == 204 or (response.status == 404 and number > 1):
                return None
            if response.status != 200:
                raise self._refusal(url, response)
            file = self._spool.new_file()
            try:
                digest, size = self._copy(self._body(response, url, timeout_ms), url, file)
            except BaseException:
                file.close()
                raise
            origin = self._origin(url, response)
            return SourcePage(url, number, dict(response.headers), file, size, digest, origin)

    def _copy(self, body: Iterator[bytes], url: str, file: IO[bytes]) -> tuple[str, int]:
        digest, size = hashlib.sha256(), 0
        for chunk in body:
            size += len(chunk)
            if size > self._limits.object_bytes_max:
                shown = self._address.shown(url)
                raise LimitExceeded(f"{shown} is larger than limits.object_bytes_max.")
            digest.update(chunk)
            file.write(chunk)
        return digest.hexdigest(), size

    def _keep(self, page: SourcePage, shown: str, name: str, window: Window) -> Found:
        self._spool.keep(shown, page.file, page.size)
        return Found(
            uri=shown,
            path=published_path(self._source, window, name),
            media_type=media_type(name, page.headers.get("content-type")),
            size=page.size,
            checksum=f"sha256:{page.sha256}",
            origin=page.origin,
        )

    # --- one request ---

    @contextlib.contextmanager
    def _asked(
        self, method: Literal["GET", "HEAD"], url: str, timeout_ms: int, more: Mapping[str, str] = {}
    ) -> Iterator[Response]:
        address = self._address
        with self._http.open(
            method,
            address.outgoing(url),
            {**address.headers(), **more},
            timeout_ms,
            shown=address.shown(url),
            secrets=address.secrets(),
            allow=self._source.allow,
        ) as response:
            yield response

    def _origin(self, url: str, response: Response) -> str | UnsetType:
        """The address that answered, as it may be shown; unset where it is the one that was asked."""
        answered, asked = self._address.shown(response.address), self._address.shown(url)
        return UNSET if answered == asked else answered

    def _body(self, response: Response, url: str, timeout_ms: int) -> Iterator[bytes]:
        """What the answer stands for. The pace is that of the wire: a body can shrink to nothing."""
        shown = self._address.shown(url)
        pace = TransferPace(self._clock.monotonic_ms, timeout_ms)
        return decoded(response, paced(whole(response, shown), pace, shown))

    def _show(self, url: str, mark: str = "") -> str:
        """The address that records hold; which one it stands for is remembered."""
        shown = self._address.shown(url) + mark
        self._real[shown] = url
        return shown

    def _refusal(self, url: str, response: Response) -> UpstreamUnavailable:
        return UpstreamUnavailable(
            f"{self._address.shown(url)} answered {response.status}.",
            status=response.status,
            retry_after=response.headers.get("retry-after"),
            remedy=_way_out(response.status),
        )

    def _same_content(self, found: Found, response: Response) -> None:
        etag, modified_ms = (
            response.headers.get("etag"),
            parse_http_date(response.headers.get("last-modified")),
        )
        if found.etag and etag:
            changed = _opaque(found.etag) != _opaque(etag)
        else:
            changed = None not in (found.modified_ms, modified_ms) and found.modified_ms != modified_ms
        if changed:
            # Asking again gives the same answer: the run has to look anew.
            raise ChecksumMismatch(
                f"{found.uri} changed since it was found.", transient=False, retryable=True
            )


def _way_out(status: int) -> str | None:
    """Of an answer that stays the same until its cause is gone; None: asking later may help."""
    if status in (404, 410):
        return (
            "Check the address: `kfm doctor` tests it. Where data is published late, list the answer under "
            f"`not_yet: [{status}]` of the source: it is waited for then."
        )
    if status in (400, 401, 403):
        return "Check the address and its credentials: `kfm doctor` tests them."
    return None


def _resumable(found: Found) -> bool:
    """Only a strong ETag proves that the rest belongs to what we have."""
    return found.etag is not None and found.etag.startswith('"')


def _range_headers(found: Found, offset: int) -> dict[str, str]:
    return {"Range": f"bytes={offset}-", "If-Range": found.etag or ""}


def _continues(response: Response, found: Found, offset: int) -> bool:
    match = _CONTENT_RANGE.fullmatch(response.headers.get("content-range", ""))
    if match is None or int(match[1]) != offset or is_encoded(response):
        return False
    return match[3] == "*" or (int(match[2]) == int(match[3]) - 1 and found.size in (None, int(match[3])))


def _opaque(etag: str) -> str:
    return etag.removeprefix("W/")


def _length(headers: Mapping[str, str]) -> int | None:
    digits = headers.get("content-length", "")
    return int(digits) if digits.isascii() and digits.isdigit() else None


def _name(url: str, headers: Mapping[str, str]) -> str:
    """The last segment of the path; a suffix is added from the type where it has none."""
    path = unquote(urlsplit(url).path).rstrip("/")
    name = path.rpartition("/")[2].replace("\\", "_").lstrip(".") or "data"
    return name if "." in name else name + suffix_for(headers.get("content-type"))
