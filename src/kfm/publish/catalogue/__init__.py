"""Published documents, rendered from a version and its tombstone alone: same input, same bytes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from hashlib import sha256
from typing import Any

from kfm.model.dataset_changes import TombstonedPromotion
from kfm.model.records import Item, Promotion
from kfm.model.versions import Version
from kfm.publish.catalogue import dcat, stac_collection
from kfm.publish.catalogue.addresses import (
    COLLECTION,
    DCAT,
    MANIFEST,
    WITHDRAWN,
    ByHash,
    ByName,
    Page,
    address_of,
    hashed_item_name,
    hashed_page_name,
    item_name,
    page_name,
)
from kfm.publish.catalogue.pages import Earlier, Pages, contents, has_pages, links_in

Tombstone = dict[str, Any]
Read = Callable[[str], bytes | None]  # a document by its address

BY_NAME, BY_HASH = ByName(), ByHash()


def tombstone_of(promotion: Promotion) -> Tombstone | None:
    """What stands in the place of withdrawn data."""
    return promotion.tombstone if isinstance(promotion, TombstonedPromotion) else None


def documents(version: Version, tombstone: Tombstone | None = None) -> Iterator[tuple[str, bytes]]:
    """Every document of a version by its path in the version's folder."""
    named = NamedDocuments(version)
    yield from named.own(tombstone).items()
    for name, data in named.changed():
        assert data is not None, "nothing is there that could go"
        yield name, data


class NamedDocuments:
    """The documents of a version by their names in its folder; of items and pages those that differ from what
    an earlier version has there."""

    def __init__(self, version: Version, earlier: Earlier | None = None) -> None:
        self.pages = Pages(version, earlier)
        self._version = version
        self._differing: dict[Page, bool] = {}

    def own(self, tombstone: Tombstone | None = None) -> dict[str, bytes]:
        """Those that each version has for itself, at its top."""
        found = {
            MANIFEST: b"".join(self._version.pieces()),
            COLLECTION: encode(stac_collection.collection(self._version, self._links())),
            DCAT: encode(dcat.dataset(self._version, BY_NAME.asset, dcat_documents("./", "./"))),
        }
        if tombstone is not None:
            found[WITHDRAWN] = encode(tombstone)
        return found

    def _links(self) -> list[stac_collection.Link]:
        if not self.pages.is_paged:
            return [stac_collection.item_link(f"./{item_name(one)}", one) for one in self._version.items()]
        return [
            stac_collection.page_link(f"./{page_name(Page(one))}", Page(one), count)
            for one, count in self.pages.sources.items()
        ]

    def changed(self) -> Iterator[tuple[str, bytes | None]]:
        """Items and pages; None: it is not there any more."""
        yield from self._changed_items()
        earlier = self.pages.earlier
        was_paged = earlier is not None and has_pages(earlier.version)
        if self.pages.is_paged and was_paged and not self._is_renamed:
            for page in sorted(self.pages.on_the_way):
                if self.page_differs(page):
                    yield page_name(page), self.page(page)
            return
        if self.pages.is_paged:
            for page in self.pages.everything():
                yield page_name(page), self.page(page)
        if was_paged and earlier is not None:
            gone = {page_name(page) for page in Pages(earlier.version).everything()}
            here = {page_name(page) for page in self.pages.everything()}
            yield from dict.fromkeys(sorted(gone - here)).items()

    def _changed_items(self) -> Iterator[tuple[str, bytes | None]]:
        for before, after in self.pages.changes:
            if after is not None:
                yield item_name(after), self.item(after)
            elif before is not None:
                yield item_name(before), None
        if self.pages.is_fresh and self.pages.earlier is not None:
            for one in self._version.items():
                if one.id not in self.pages.changed_ids:
                    yield item_name(one), self.item(one)

    @property
    def _is_renamed(self) -> bool:
        """Pages name their dataset."""
        earlier = self.pages.earlier
        return earlier is not None and earlier.version.dataset_id != self._version.dataset_id

    def page_differs(self, page: Page) -> bool:
        """Does it list other names than in the earlier version?"""
        if page not in self._differing:
            assert self.pages.earlier is not None
            old, new = contents(self.pages.earlier.version, page), contents(self._version, page)
            self._differing[page] = old.pages != new.pages or _ids(old.items) != _ids(new.items)
        return self._differing[page]

    def item(self, one: Item) -> bytes:
        return encode(stac_collection.item(self._version.header, one, BY_NAME))

    def page(self, page: Page) -> bytes | None:
        """None, if there is nothing to list."""
        listed, up = contents(self._version, page), BY_NAME.above_page(page)
        if not listed.pages and not listed.items:
            return None
        links = [stac_collection.page_link(up + page_name(one), one) for one in listed.pages]
        links += [stac_collection.item_link(up + item_name(one), one) for one in listed.items]
        return encode(stac_collection.page(self._version.header, page, links, BY_NAME))


class HashedDocuments:
    """The documents of a version where items and pages have the hash of their bytes in their addresses.

    An address is relative to the dataset's part of the bucket. Of what did not change it is read from the
    page above in the earlier version: `read` brings these pages.
    """

    def __init__(
        self, version: Version, earlier: Earlier | None = None, read: Read = lambda _address: None
    ) -> None:
        self.pages = Pages(version, earlier)
        self._version = version
        self._read = read
        self._top: list[tuple[Page | Item, str]] | None = None  # what the collection links, with addresses

    def new(self) -> Iterator[tuple[str, bytes]]:
        """Items and pages that the earlier version does not have, with their addresses; what leads to another
        comes after it. To be read to its end before the collection is made."""
        old = self._old(None)
        top: list[tuple[Page | Item, str]] = []
        if self.pages.is_paged:
            for page in self.pages.top():
                top.append((page, (yield from self._page(page, old))))
        else:
            for item in self._version.items():
                top.append((item, (yield from self._item(item, old))))
        self._top = top

    def collection(self, up: str) -> bytes:
        """`up`: the way from the collection to the dataset's part of the bucket, such as `../../`."""
        assert self._top is not None, "what it leads to is made first"
        links = [
            stac_collection.page_link(up + address, one, self.pages.sources[one.source_id])
            if isinstance(one, Page)
            else stac_collection.item_link(up + address, one)
            for one, address in self._top
        ]
        return encode(stac_collection.collection(self._version, links))

    def dcat(self, up: str, folder: str) -> bytes:
        """`folder`: the way to the folder of the version's manifest."""
        located = dcat_documents("./", folder)
        return encode(dcat.dataset(self._version, lambda asset: up + BY_HASH.asset(asset), located))

    def _page(self, page: Page, above: _Old) -> Generator[tuple[str, bytes], None, str]:
        """Make a page and what is new below it, unless the page above leads to it already."""
        if page not in self.pages.on_the_way and (known := above.get(("child", page.title))):
            return known
        old, up = self._old(above.get(("child", page.title))), BY_HASH.above_page(page)
        listed, links = contents(self._version, page), []
        for child in listed.pages:
            links.append(stac_collection.page_link(up + (yield from self._page(child, old)), child))
        for item in listed.items:
            links.append(stac_collection.item_link(up + (yield from self._item(item, old)), item))
        data = encode(stac_collection.page(self._version.header, page, links, BY_HASH))
        address = hashed_page_name(sha256(data).hexdigest())
        yield address, data
        return address

    def _item(self, item: Item, above: _Old) -> Generator[tuple[str, bytes], None, str]:
        if item.id not in self.pages.changed_ids and (known := above.get(("item", item.id))):
            return known
        data = encode(stac_collection.item(self._version.header, item, BY_HASH))
        address = hashed_item_name(sha256(data).hexdigest(), item)
        yield address, data
        return address

    def _old(self, address: str | None) -> _Old:
        """What a page of the earlier version leads to; the collection, without an address."""
        if self.pages.is_fresh or self.pages.earlier is None:
            return {}
        document = self.pages.earlier.collection if address is None else self._whole(address)
        return {
            (rel, title): address_of(link["href"])
            for rel in ("child", "item")
            for title, link in links_in(document, rel).items()
        }

    def _whole(self, address: str) -> bytes | None:
        """A page, if it is the one that has this address."""
        data = self._read(address)
        return data if data is not None and hashed_page_name(sha256(data).hexdigest()) == address else None


def _ids(items: list[Item]) -> list[str]:
    return [one.id for one in items]


_Old = dict[tuple[str, str], str]  # (rel, title) → address


def dcat_documents(collection: str, manifest: str) -> list[tuple[str, str]]:
    """Title and address of the documents that list a version's files; given are the ways to their folders."""
    return [("STAC collection", collection + COLLECTION), ("Manifest", manifest + MANIFEST)]


def encode(plain: dict[str, Any]) -> bytes:
    """RFC 8785 with real numbers: these documents are read, not hashed."""
    import rfc8785  # imported late: start-up is measured

    return rfc8785.dumps(plain) + b"\n"
