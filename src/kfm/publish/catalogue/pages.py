"""Pages of the catalogue: what is on them, and which of them differ between two versions.

What a page lists is found in the tree of items by look-ups: an item's id begins with its source and the time
at which its window begins. Ids of other sources may stand between these (`goes` and `goes_16`), so an item is
believed to be a source's own only when it says so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from kfm.model.item_ids import source_part
from kfm.model.records import Item
from kfm.model.remembered import remembered
from kfm.model.versions import Version
from kfm.publish.catalogue.addresses import Page

LINKED_MAX = 100  # items that a collection itself links, and files that a DCAT record lists
ITEMS = "kfm:items"  # of a link to a source's page: how many items are below it
_DATE_DIGITS = 8
_AFTER_ALL = "\x7f"  # ids are of letters, digits and .-_~
_DIGITS = re.compile("[0-9]*")
_WIDTHS = (4, 2, 2)  # year, month, day
_PAST = (":", ":", "U")  # follows what an id has next: a digit, or `T`


class Earlier(NamedTuple):
    """A version that is shown already, and its collection."""

    version: Version
    collection: bytes | None


class Contents(NamedTuple):
    """What a page lists, in order."""

    pages: list[Page]
    items: list[Item]


class Pages:
    """The pages of one version; those that are not as an earlier version has them."""

    def __init__(self, version: Version, earlier: Earlier | None = None) -> None:
        self.version = version
        self.earlier = earlier

    @remembered
    def is_paged(self) -> bool:
        return has_pages(self.version)

    @remembered
    def is_fresh(self) -> bool:
        """Do all items differ from what is shown? What an item says of its dataset is in each of them."""
        if self.earlier is None:
            return True
        old, new = self.earlier.version.header, self.version.header
        return (old.dataset_id, old.rights) != (new.dataset_id, new.rights)

    @remembered
    def changes(self) -> list[tuple[Item | None, Item | None]]:
        """(before, after) of each item that differs."""
        return self.version.changed_items(self.earlier.version if self.earlier else None)

    @remembered
    def changed_ids(self) -> set[str]:
        return {one.id for pair in self.changes for one in pair if one is not None}

    @remembered
    def on_the_way(self) -> set[Page]:
        """The pages that lead to an item which differs, in either version."""
        found: set[Page] = set()
        for pair in self.changes:
            for item in pair:
                page = Page.of(item) if item is not None else None
                while page is not None and page not in found:
                    found.add(page)
                    page = page.above
        return found

    @remembered
    def sources(self) -> dict[str, int]:
        """How many items each source has, in the order of their names in ids.

        Read from the earlier collection, and from what changed since: no look-up finds the sources.
        """
        counts = self._earlier_sources()
        if counts is None:
            counts = Counter(item.source_id for item in self.version.items())
        else:
            for before, after in self.changes:
                counts.update([after.source_id] if after else ())
                counts.subtract([before.source_id] if before else ())
        return {one: counts[one] for one in sorted(counts, key=source_part) if counts[one]}

    def _earlier_sources(self) -> Counter[str] | None:
        if self.earlier is None:
            return None
        if not has_pages(self.earlier.version):
            return Counter(item.source_id for item in self.earlier.version.items())
        links = links_in(self.earlier.collection, "child")
        counts = Counter({title: link.get(ITEMS, 0) for title, link in links.items()})
        return counts if counts.total() == len(self.earlier.version) else None  # else it was edited

    def top(self) -> list[Page]:
        """The pages that the collection leads to."""
        return [Page(source_id) for source_id in self.sources]

    def everything(self) -> Iterator[Page]:
        """Every page, those below before those above."""
        for page in self.top() if self.is_paged else ():
            yield from self._below(page)

    def _below(self, page: Page) -> Iterator[Page]:
        for child in contents(self.version, page).pages:
            yield from self._below(child)
        yield page


def has_pages(version: Version) -> bool:
    """Has it so many items that its collection does not link them itself?"""
    return len(version) > LINKED_MAX


def links_in(document: bytes | None, rel: str) -> dict[str, dict[str, Any]]:
    """The links of a document, by title. None, if it is none of ours."""
    try:
        links = msgspec.json.decode(document or b"{}").get("links", ())
        return {link["title"]: link for link in links if link["rel"] == rel and "title" in link}
    except (msgspec.DecodeError, AttributeError, KeyError, TypeError):
        return {}


def contents(version: Version, page: Page) -> Contents:
    """What a page lists: of a source its years, and the items without windows."""
    if len(page.dates) == len(_WIDTHS):
        return Contents([], items_on(version, page))
    return Contents(
        [Page(page.source_id, (*page.dates, one)) for one in _dates_below(version, page)],
        items_on(version, page) if not page.dates else [],
    )


def items_on(version: Version, page: Page) -> list[Item]:
    """The items that a page lists itself."""
    part = source_part(page.source_id)
    if page.dates:
        found = version.items(f"{part}_{''.join(page.dates)}T")
    else:
        found = [*version.find([part]).values(), *version.items(f"{part}~")]
    return [one for one in found if Page.of(one) == page]


def _dates_below(version: Version, page: Page) -> Iterator[str]:
    """The years of a source, the months of a year, the days of a month that have items: one look-up each."""
    start = f"{source_part(page.source_id)}_{''.join(page.dates)}"
    width = _WIDTHS[len(page.dates)]
    cursor = start
    while (found := _next_own(version, page.source_id, start, cursor)) is not None:
        date = found[len(start) : len(start) + width]
        yield date
        cursor = start + date + _PAST[len(page.dates)]


def _next_own(version: Version, source_id: str, start: str, cursor: str) -> str | None:
    """The first id from there on that begins so and is of a window of this source."""
    name = len(source_part(source_id)) + 1
    while (found := version.after(cursor)) is not None and found.startswith(start):
        digits = _DIGITS.match(found, name).end() - name  # type: ignore[union-attr]
        after = found[name + digits : name + digits + 1]
        if digits == _DATE_DIGITS and after == "T":
            item = version.find([found])[found]
            if item.source_id == source_id and not item.is_snapshot:
                return found
            after = ""
        # Another source's; with a character that no own one has there, so are all that begin like this.
        cursor = found[: name + digits + 1] + _AFTER_ALL if after else f"{found}\0"
    return None
