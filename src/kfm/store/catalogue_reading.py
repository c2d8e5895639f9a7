"""Questions to the embedded catalogue. Nothing here writes."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import msgspec

from kfm.core.catalogue import AssetFacts, Bbox, CollectionFigures, Item, Search
from kfm.store import collection_figures
from kfm.store.session import Database, Row

_ASSET = msgspec.json.Decoder(AssetFacts).decode
_ANY = msgspec.json.Decoder().decode
_ENCODE = msgspec.json.Encoder().encode
_COLLECTIONS_MAX = 10_000
_FOREVER = 2**62


class CatalogueTables:
    """Implements `ingest_ports.CatalogueReader` on either database."""

    def __init__(self, database: Database) -> None:
        self._session = database.session

    def item(self, collection_id: str, item_id: str) -> Item | None:
        found = self._by_ids([collection_id], [item_id])
        return self._items(found)[0] if found else None

    def find_items(self, search: Search) -> list[Item]:
        """The newest first; those after `search.after` only."""
        collections = search.collections or tuple(self.collection_ids())
        if search.ids:
            found = [row for row in self._by_ids(collections, search.ids) if _fits(row, search)]
            found.sort(key=_order)
        else:
            pages = [self._page(one, box, search) for one in collections for box in _boxes(search.bbox)]
            found = list(_distinct(heapq.merge(*pages, key=_order)))
        return self._items(list(islice(found, search.limit)))

    def collection_ids(self) -> list[str]:
        found: list[str] = []
        for _ in range(_COLLECTIONS_MAX):
            row = self._session.one("items.next_collection", after=found[-1] if found else "")
            if row is None:
                break
            found.append(row[0])
        return found

    def collections(self) -> list[CollectionFigures]:
        """From figures that are kept, not by counting."""
        return collection_figures.read(self._session)

    # --- inside ----------------------------------------------------------------------

    def _page(self, collection_id: str, box: Bbox | None, search: Search) -> list[Row]:
        before_ms, before_number = search.after or (_FOREVER, _FOREVER)
        # Where a start is known it is what items are ordered by: later ones need not be looked at.
        if search.until_ms is not None:
            before_ms, before_number = min((before_ms, before_number), (search.until_ms + 1, 0))
        common: dict[str, Any] = {
            "collection_id": collection_id,
            "before_ms": before_ms,
            "before_number": before_number,
            "from_ms": -_FOREVER if search.from_ms is None else search.from_ms,
            "until_ms": _FOREVER if search.until_ms is None else search.until_ms,
            "row_limit": search.limit,
        }
        if box is None:
            return self._session.all("items.newest", **common)
        west, south, east, north = box
        return self._session.all(
            "items.newest_in_box", west=west, south=south, east=east, north=north, **common
        )

    def _by_ids(self, collections: Sequence[str], ids: Sequence[str]) -> list[Row]:
        pairs = [(collection_id, item_id) for collection_id in collections for item_id in dict.fromkeys(ids)]
        found = self._session.all("items.known", pairs=_ENCODE(pairs).decode())
        return [row for row in found if row[12] is not None]

    def _items(self, found: Sequence[Row]) -> list[Item]:
        beside: dict[int, list[AssetFacts]] = {}
        if found:
            numbers = _ENCODE([row[0] for row in found]).decode()
            for number, _role, facts in self._session.all("assets.of", items=numbers):
                beside.setdefault(number, []).append(_ASSET(facts))
        return [_item(row, beside.get(row[0], ())) for row in found]


def _item(row: Row, beside: Iterable[AssetFacts]) -> Item:
    return Item(
        number=row[0],
        collection_id=row[1],
        item_id=row[2],
        start_ms=row[3],
        end_ms=row[4],
        at_ms=row[5],
        bbox=None if row[6] is None else (row[6], row[7], row[8], row[9]),
        geometry=None if row[10] is None else _ANY(row[10]),
        properties=_ANY(row[11]),
        assets=(_ASSET(row[12]), *beside),
        revision=row[13],
        created_at_ms=row[14],
        updated_at_ms=row[15],
    )


def _order(row: Row) -> tuple[int, int]:
    return -row[5], -row[0]


def _distinct(found: Iterable[Row]) -> Iterable[Row]:
    last = None
    for row in found:
        if row[0] != last:
            yield row
        last = row[0]


def _boxes(bbox: Bbox | None) -> list[Bbox | None]:
    """A box that crosses the antimeridian is two."""
    if bbox is None or bbox[0] <= bbox[2]:
        return [bbox]
    west, south, east, north = bbox
    return [(west, south, 180.0, north), (-180.0, south, east, north)]


def _fits(row: Row, search: Search) -> bool:
    if search.after is not None and (row[5], row[0]) >= search.after:
        return False
    start_ms, end_ms = (row[5] if row[3] is None else row[3]), (row[5] if row[4] is None else row[4])
    if search.from_ms is not None and end_ms < search.from_ms:
        return False
    if search.until_ms is not None and start_ms > search.until_ms:
        return False
    return search.bbox is None or any(_touches(row, box) for box in _boxes(search.bbox) if box)


def _touches(row: Row, box: Bbox) -> bool:
    if row[6] is None:
        return False
    west, south, east, north = row[6:10]
    beside = west <= box[2] and east >= box[0]
    if west > east:
        beside = west <= box[2] or east >= box[0]
    return bool(beside and south <= box[3] and north >= box[1])
