"""Pages of an HTTP API: four styles, one walk, always bounded."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, NamedTuple

from msgspec import UNSET, UnsetType

from kfm.model.errors import LimitExceeded, UpstreamUnavailable
from kfm.model.settings import Pagination
from kfm.sources.http_address import with_params

PAGE_BYTES_MAX = 64 * 1024 * 1024
_LINK = re.compile(
    r"<([^<>]*)>\s*((?:;\s*[\w!#$&+.^`|~*-]+\s*(?:=\s*(?:\"[^\"]*\"|[^\s,;\"]*))?\s*)*)", re.ASCII
)
_REL = re.compile(r";\s*rel\s*=\s*(?:\"([^\"]*)\"|([^\s,;\"]+))", re.ASCII | re.IGNORECASE)


class SourcePage(NamedTuple):
    url: str
    number: int
    headers: Mapping[str, str]
    file: IO[bytes]
    size: int
    sha256: str
    origin: str | UnsetType = UNSET


Read = Callable[[str, int], SourcePage | None]
Follow = Callable[[str, str], str]


def following(
    pagination: Pagination, url: str, read: Read, follow: Follow, shown: Callable[[str], str]
) -> Iterator[SourcePage]:
    """Every page with something on it, in order."""
    seen: set[str] = set()
    address = _first(pagination, url)
    last_sha256 = ""
    for number in range(1, pagination.pages_max + 1):
        if address in seen:
            raise _circle(shown(url), number)
        seen.add(address)
        page = read(address, number)
        if page is None:
            return
        body = _parsed(page, shown(page.url)) if pagination.style != "link-header" else None
        counted = pagination.style in ("page-number", "offset")
        if counted and not _items(pagination, body, shown(page.url)):
            page.file.close()
            return
        if counted and page.sha256 == last_sha256:  # it does not heed our parameter
            raise _circle(shown(url), number)
        last_sha256 = page.sha256
        yield page
        onward = _next(pagination, page, body, url, follow, shown)
        if onward is None:
            return
        address = onward
    raise LimitExceeded(f"{shown(url)} has more than {pagination.pages_max} pages (pagination.pages_max).")


def _first(pagination: Pagination, url: str) -> str:
    params = {}
    if pagination.size_parameter:
        params[pagination.size_parameter] = str(pagination.page_size)
    if pagination.style == "page-number":
        params[pagination.parameter] = str(pagination.first)
    elif pagination.style == "offset":
        params[pagination.parameter] = "0"
    return with_params(url, params) if params else url


def _next(
    pagination: Pagination, page: SourcePage, body: Any, url: str, follow: Follow, shown: Callable[[str], str]
) -> str | None:
    if pagination.style == "link-header":
        link = next_link(page.headers.get("link", ""))
        return follow(page.url, link) if link else None
    if pagination.style == "json-next":
        link = pointed(body, pagination.next_pointer)
        link = link.get("href") if isinstance(link, dict) else link
        if link is not None and not isinstance(link, str):
            raise UpstreamUnavailable(
                f"{shown(page.url)}: {pagination.next_pointer} is no address.", transient=False
            )
        return follow(page.url, link) if link else None
    step = (
        page.number * pagination.page_size if pagination.style == "offset" else pagination.first + page.number
    )
    return with_params(_first(pagination, url), {pagination.parameter: str(step)})


def next_link(header: str) -> str | None:
    """The target with rel="next" of a Link header."""
    for match in _LINK.finditer(header[:65_536]):
        rel = _REL.search(match[2])
        if rel and "next" in (rel[1] or rel[2] or "").lower().split():
            return match[1]
    return None


def pointed(document: Any, pointer: str) -> Any:
    """What a JSON pointer (RFC 6901) leads to; None if nothing."""
    for token in pointer.split("/")[1:] if pointer else []:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(document, dict):
            document = document.get(key)
        elif isinstance(document, list) and key.isascii() and key.isdigit() and int(key) < len(document):
            document = document[int(key)]
        else:
            return None
    return document


def _items(pagination: Pagination, body: Any, shown: str) -> list[Any]:
    items = pointed(body, pagination.items_pointer)
    if not isinstance(items, list):
        where = pagination.items_pointer or "the top"
        raise UpstreamUnavailable(
            f"{shown} has no list at {where} (pagination.items_pointer).", transient=False
        )
    return items


def _parsed(page: SourcePage, shown: str) -> Any:
    if page.size > PAGE_BYTES_MAX:
        raise LimitExceeded(f"A page of {shown} is larger than {PAGE_BYTES_MAX} bytes.")
    page.file.flush()
    try:
        return json.loads(os.pread(page.file.fileno(), page.size, 0))
    except (ValueError, RecursionError):
        raise UpstreamUnavailable(f"{shown} did not answer with JSON.", transient=False) from None


def _circle(shown: str, number: int) -> LimitExceeded:
    return LimitExceeded(
        f"The pages of {shown} go round in a circle: page {number} was there before.",
        remedy="Check the source's `pagination`; upstream may ignore the page parameter.",
    )
