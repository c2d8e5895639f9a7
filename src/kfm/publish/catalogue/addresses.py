"""Addresses of documents: by name in a folder, by the hash of their bytes in a bucket.

An address is relative to the place that holds them all: a version's folder, or a dataset's part of a bucket.
Ids and the sources in them are safe in addresses; names of files are not.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol
from urllib.parse import quote

from kfm.model.item_ids import source_part
from kfm.model.records import Asset, Item
from kfm.model.times import rfc3339

COLLECTION = "collection.json"
MANIFEST = "manifest.json"
DCAT = "dcat.jsonld"
WITHDRAWN = "withdrawn.json"  # beside the manifest of a version that lacks what is withdrawn
_UP = re.compile(r"(\.\.?/)*")


class Page(NamedTuple):
    """A page of the catalogue: a source, or a year, a month or a day of it (UTC)."""

    source_id: str
    dates: tuple[str, ...] = ()  # year, month, day

    @property
    def title(self) -> str:
        return "-".join(self.dates) or self.source_id

    @property
    def above(self) -> Page | None:
        return Page(self.source_id, self.dates[:-1]) if self.dates else None

    @classmethod
    def of(cls, item: Item) -> Page:
        """The one that lists this item."""
        return cls(item.source_id, dates_of(item))


def dates_of(item: Item) -> tuple[str, ...]:
    """Year, month and day on which its window begins; nothing for a source without windows."""
    if item.is_snapshot:
        return ()
    year, month, day = rfc3339(item.window_start_ms)[:10].split("-")
    return year, month, day


class Addresses(Protocol):
    """Where documents are, and what they lead to."""

    collection: str  # of all items and pages

    def asset(self, asset: Asset) -> str: ...
    def above_item(self, item: Item) -> str:
        """The way from an item's document up to the place that holds all: `../../`."""

    def above_page(self, page: Page) -> str: ...
    def page_above(self, page: Page) -> str | None:
        """The address of the page above; None where it can't be known. The collection is above sources."""


# --- by name -------------------------------------------------------------------------


def item_name(item: Item) -> str:
    return "/".join(("items", source_part(item.source_id), *dates_of(item), f"{item.id}.json"))


def page_name(page: Page) -> str:
    folder = "/".join(("catalogue", source_part(page.source_id), *page.dates))
    return f"{folder}.json" if len(page.dates) == 3 else f"{folder}/index.json"


def asset_name(asset: Asset) -> str:
    return f"data/{asset.path}"


class ByName:
    """In a version's folder, on a branch, in a release."""

    collection = COLLECTION

    def asset(self, asset: Asset) -> str:
        return quote(asset_name(asset))

    def above_item(self, item: Item) -> str:
        return "../" * (2 + len(dates_of(item)))

    def above_page(self, page: Page) -> str:
        return "../" * page_name(page).count("/")

    def page_above(self, page: Page) -> str | None:
        return page_name(page.above) if page.above else self.collection


# --- by hash -------------------------------------------------------------------------


def hashed_item_name(sha256: str, item: Item) -> str:
    return f"items/{sha256}/{item.id}.json"


def hashed_page_name(sha256: str) -> str:
    return f"catalogue/{sha256}.json"


def hashed_asset_name(asset: Asset) -> str:
    return f"files/{asset.sha256}/{asset.path.rpartition('/')[2]}"


class ByHash:
    """In a bucket: what does not change is found at the same address in every version."""

    collection = f"latest/{COLLECTION}"

    def asset(self, asset: Asset) -> str:
        return quote(hashed_asset_name(asset))

    def above_item(self, item: Item) -> str:
        del item
        return "../../"

    def above_page(self, page: Page) -> str:
        del page
        return "../"

    def page_above(self, page: Page) -> str | None:
        """A page above has the hash of this one in it, so this one can't have the other's."""
        return None if page.above else self.collection


def address_of(href: str) -> str:
    """An address, from a link of a document that leads to it."""
    return href[_UP.match(href).end() :]  # type: ignore[union-attr]
