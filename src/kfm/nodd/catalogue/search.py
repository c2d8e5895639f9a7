"""Catalogue search: from the texts of a query to a `Search`; the items of a collection, page by page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import isfinite
from typing import TYPE_CHECKING

import msgspec

from kfm.model.catalogue import Bbox, CatalogueItem, Search
from kfm.model.errors import UsageError
from kfm.model.times import parse_rfc3339
from kfm.nodd.catalogue.geometry import Shape

if TYPE_CHECKING:
    from kfm.db.catalogue import CatalogueReader

LIMIT_MAX = 10_000  # what may be asked for
PAGE_ITEMS_MAX = 1_000  # what one page holds at most
LIMIT_DEFAULT = 100
NAMES_MAX = 1_000  # ids or collections in one query
NAME_CHARS_MAX = 256
CANDIDATES_MAX = 200_000  # items whose place is compared with a shape before anything is found
_CANDIDATES_ENOUGH = 10_000  # the same once something was
_BATCH = 1_000
_TOKEN = re.compile(r"(-?\d{1,15})\.(\d{1,18})\Z", re.ASCII)
_DATETIME_CHARS_MAX = 100


def parse_bbox(parts: Sequence[object]) -> Bbox:
    """Four numbers, or six with heights, which nothing here has: west, south, east, north."""
    if len(parts) not in (4, 6):
        raise _wrong("bbox", "It has four numbers, or six.")
    numbers = [_number(part) for part in parts]
    west, south, east, north = numbers if len(numbers) == 4 else (*numbers[:2], *numbers[3:5])
    if not all(-180.0 <= edge <= 180.0 for edge in (west, east)):
        raise _wrong("bbox", "Longitudes are from -180 to 180.")
    if not -90.0 <= south <= north <= 90.0:
        raise _wrong("bbox", "Latitudes are from -90 to 90, south before north.")
    if len(numbers) == 6 and numbers[2] > numbers[5]:
        raise _wrong("bbox", "Heights are the lower one first.")
    return west, south, east, north


def _number(part: object) -> float:
    try:
        if isinstance(part, bool) or not isinstance(part, int | float | str) or len(str(part)) > 40:
            raise ValueError
        number = float(part)
    except (ValueError, OverflowError):
        raise _wrong("bbox", f"`{str(part)[:40]}` is no number.") from None
    if not isfinite(number) or (isinstance(part, str) and ("_" in part or not part.isascii())):
        raise _wrong("bbox", f"`{str(part)[:40]}` is no number of degrees.")
    return number


def parse_datetime(text: str) -> tuple[int | None, int | None]:
    """A moment, or a range with both its ends, of which one may be open: `a`, `a/b`, `../b`, `a/..`."""
    if len(text) > _DATETIME_CHARS_MAX:
        raise _wrong("datetime", "It is too long.")
    parts = text.split("/")
    if len(parts) == 1:
        at_ms = _moment(text)
        return at_ms, at_ms
    if len(parts) != 2:
        raise _wrong("datetime", "A range has two ends.")
    start, end = (None if part in ("", "..") else _moment(part) for part in parts)
    if start is None and end is None:
        raise _wrong("datetime", "One end of a range may be open, not both.")
    if start is not None and end is not None and start > end:
        raise _wrong("datetime", "It ends before it begins.")
    return start, end


def _moment(text: str) -> int:
    try:
        return parse_rfc3339(text)
    except UsageError as error:
        raise _wrong("datetime", error.detail) from None


def parse_limit(value: object) -> int:
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdigit() and len(value) <= 9 else None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LIMIT_MAX:
        raise _wrong("limit", f"It is a whole number from 1 to {LIMIT_MAX:,}.")
    return min(value, PAGE_ITEMS_MAX)


def parse_names(field: str, values: Sequence[object]) -> tuple[str, ...]:
    """Ids of items or collections."""
    if len(values) > NAMES_MAX:
        raise _wrong(field, f"There are more than {NAMES_MAX:,} of them.")
    for value in values:
        if not isinstance(value, str) or not 0 < len(value) <= NAME_CHARS_MAX:
            raise _wrong(field, f"Each is a text of 1 to {NAME_CHARS_MAX} characters.")
    return tuple(dict.fromkeys(str(value) for value in values))


def token_of(item: CatalogueItem) -> str:
    """Where a page ended."""
    return f"{item.at_ms}.{item.number}"


def parse_token(text: object) -> tuple[int, int]:
    found = _TOKEN.match(text) if isinstance(text, str) else None
    if found is None:
        raise _wrong("token", "It is none that was given out here.")
    return int(found[1]), int(found[2])


def find_page(
    catalogue: CatalogueReader, search: Search, shape: Shape | None = None
) -> tuple[list[CatalogueItem], str | None]:
    """One page, newest first, and the token of the next one if there is any. Only the last may be empty."""
    if shape is None:
        found = catalogue.find_items(msgspec.structs.replace(search, limit=search.limit + 1))
        if len(found) <= search.limit:
            return found, None
        return found[: search.limit], token_of(found[search.limit - 1])
    return _shaped_page(catalogue, msgspec.structs.replace(search, bbox=shape.bbox), shape)


def pages_of(catalogue: CatalogueReader, collection_id: str, limit: int) -> Iterator[list[CatalogueItem]]:
    """A whole collection, newest first, so many items at a time."""
    after: tuple[int, int] | None = None
    while page := catalogue.find_items(Search(collections=(collection_id,), after=after, limit=limit)):
        yield page
        after = (page[-1].at_ms, page[-1].number)


def _shaped_page(
    catalogue: CatalogueReader, search: Search, shape: Shape
) -> tuple[list[CatalogueItem], str | None]:
    """The shape's own box finds candidates; each is then compared with the shape."""
    found: list[CatalogueItem] = []
    seen, after = 0, search.after
    while True:
        batch = catalogue.find_items(msgspec.structs.replace(search, after=after, limit=_BATCH))
        for item in batch:
            if item.bbox is not None and shape.touches(item.bbox):
                if len(found) == search.limit:
                    return found, token_of(found[-1])
                found.append(item)
        if len(batch) < _BATCH:
            return found, None
        after, seen = (batch[-1].at_ms, batch[-1].number), seen + len(batch)
        if found and seen >= _CANDIDATES_ENOUGH:
            return found, token_of(batch[-1])
        if seen >= CANDIDATES_MAX:
            raise _wrong(
                "intersects", "Too many items lie around it and none in it: name a time or a collection."
            )


def _wrong(field: str, detail: str) -> UsageError:
    return UsageError(f"`{field}` can't be used. {detail}", remedy="Correct it and ask again.")
