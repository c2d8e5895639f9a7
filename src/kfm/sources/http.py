"""One resource, or the pages of one, over HTTP.

A validator (ETag or Last-Modified) from HEAD identifies the content; where there is none, the body
is read and its SHA-256 does. Bodies that discovery read are kept, so that they need not come twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import IO
from urllib.parse import unquote, urlsplit

import msgspec

from kfm.core.errors import ChecksumMismatch, LimitExceeded, UpstreamUnavailable
from kfm.core.http_dates import parse_http_date
from kfm.core.records import Found, Window
from kfm.core.redact import redact_url
from kfm.core.settings import Limits, Source
from kfm.ports import Guard, Http, Response
from kfm.sources.address import Address, Resolve
from kfm.sources.bodies import decoded, is_encoded, whole
from kfm.sources.media import media_type, suffix_for
from kfm.sources.pages import Page, following
from kfm.sources.placing import StreamDownload, place_fields, published_path, settled
from kfm.sources.spool import Spool

_BUSY = frozenset({408, 429, 500, 502, 503, 504})
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)", re.ASCII)


class HttpSource:
    def __init__(self, source: Source, http: Http, guard: Guard, resolve: Resolve, limits: Limits) -> None:
        self._source = source
        self._http = http
        self._guard = guard
        self._limits = limits
        self._address = Address(source, resolve)
        self._spool = Spool()
        self._pages: dict[str, str] = {}  # shown address → where a page really was

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
        url = self._pages.get(found.uri) or self._address.outgoing(found.uri)
        ranged = _resumable(found) and offset > 0
        with contextlib.ExitStack() as stack:
            response = stack.enter_context(self._asked(url, _range_headers(found, offset) if ranged else {}))
            if ranged and (
                response.status == 416 or (response.status == 206 and not _continues(response, found, offset))
            ):
                stack.close()
                response = stack.enter_context(self._asked(url, {}))
            if response.status not in (200, 206) or (response.status == 206 and not ranged):
                raise refusal(url, response)
            self._same_content(found, response)
            begin = offset if response.status == 206 else 0
            length = _length(response.headers)
            size = None if is_encoded(response) else found.size if length is None else begin + length
            told = msgspec.structs.replace(found, size=size)
            yield StreamDownload(begin, told, decoded(response, whole(response, redact_url(url))))

    # --- discovery ---

    def _probe(self, url: str, window: Window) -> Found | None:
        headers = self._guard(lambda timeout_ms: self._head(url, timeout_ms))
        if headers is not None and (headers.get("etag") or parse_http_date(headers.get("last-modified"))):
            name = _name(url, headers)
            return Found(
                uri=self._address.shown(url),
                path=published_path(self._source, window, name),
                media_type=media_type(name, headers.get("content-type")),
                size=None if headers.get("content-encoding") else _length(headers),
                etag=headers.get("etag"),
                modified_ms=parse_http_date(headers.get("last-modified")),
            )
        page = self._read(url, number=1)
        if page is None:
            return None
        return self._keep(page, self._address.shown(url), _name(url, page.headers), window)

    def _head(self, url: str, timeout_ms: int) -> Mapping[str, str] | None:
        """The headers of the resource; None where HEAD does not tell."""
        with self._http.open(
            "HEAD", self._address.outgoing(url), self._address.headers(), timeout_ms
        ) as response:
            if response.status in _BUSY:
                raise refusal(url, response)
            return dict(response.headers) if response.status == 200 else None

    def _walk(self, url: str, window: Window) -> Iterator[Found]:
        pagination = self._source.pagination
        assert pagination is not None
        total = 0
        for page in following(pagination, url, self._read, self._address.follow):
            total += page.size
            if total > self._limits.run_bytes_max:
                raise LimitExceeded(f"The pages of {redact_url(url)} hold too much (limits.run_bytes_max).")
            stem, dot, suffix = _name(url, page.headers).rpartition(".")
            name = f"{stem}-{page.number:04d}.{suffix}" if dot else f"{suffix}-{page.number:04d}"
            # Cursors may look like secrets and be masked: the number keeps the addresses apart.
            shown = f"{self._address.shown(page.url)}#page={page.number}"
            self._pages[shown] = self._address.outgoing(page.url)
            yield self._keep(page, shown, name, window)

    def _read(self, url: str, number: int) -> Page | None:
        """A whole body, hashed; None for "no content"."""
        return self._guard(lambda timeout_ms: self._read_once(url, number, timeout_ms))

    def _read_once(self, url: str, number: int, timeout_ms: int) -> Page | None:
        with self._http.open(
            "GET", self._address.outgoing(url), self._address.headers(), timeout_ms
        ) as response:
            if response.status == 204 or (response.status == 404 and number > 1):
                return None
            if response.status != 200:
                raise refusal(url, response)
            file = self._spool.new_file()
            try:
                digest, size = self._copy(response, url, file)
            except BaseException:
                file.close()
                raise
            return Page(url, number, dict(response.headers), file, size, digest)

    def _copy(self, response: Response, url: str, file: IO[bytes]) -> tuple[str, int]:
        digest, size = hashlib.sha256(), 0
        for chunk in decoded(response, whole(response, redact_url(url))):
            size += len(chunk)
            if size > self._limits.object_bytes_max:
                raise LimitExceeded(f"{redact_url(url)} is larger than limits.object_bytes_max.")
            digest.update(chunk)
            file.write(chunk)
        return digest.hexdigest(), size

    def _keep(self, page: Page, shown: str, name: str, window: Window) -> Found:
        self._spool.keep(shown, page.file, page.size)
        return Found(
            uri=shown,
            path=published_path(self._source, window, name),
            media_type=media_type(name, page.headers.get("content-type")),
            size=page.size,
            checksum=f"sha256:{page.sha256}",
        )

    # --- fetching ---

    @contextlib.contextmanager
    def _asked(self, url: str, more: Mapping[str, str]) -> Iterator[Response]:
        headers = {**self._address.headers(), **more}
        with self._http.open("GET", url, headers, self._limits.call_timeout_ms) as response:
            yield response

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


def refusal(url: str, response: Response) -> UpstreamUnavailable:
    return UpstreamUnavailable(
        f"{redact_url(url)} answered {response.status}.",
        status=response.status,
        retry_after=response.headers.get("retry-after"),
    )


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
