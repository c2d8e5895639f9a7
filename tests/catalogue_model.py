"""The catalogue as plainly as it can be said: what every real one must answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec

from kfm.model.catalogue import AssetFacts, Bbox, CatalogueEntry, CatalogueItem, CollectionFigures, Search


class ModelCatalogue:
    """Items in memory. A `CatalogueReader`; `put` is what a finished unit does."""

    def __init__(self) -> None:
        self._items: dict[tuple[str, str], CatalogueItem] = {}
        self._numbers = 0

    def put(self, entry: CatalogueEntry, now_ms: int, announced_ms: int = 0) -> None:
        """An entry lands. Older bytes never replace newer ones; what is the same changes nothing."""
        where = (entry.collection_id, entry.item_id)
        old = self._items.get(where)
        others = tuple(each for each in (old.assets if old else ()) if each.wal_id != entry.asset.wal_id)
        before = next(
            (each for each in (old.assets if old else ()) if each.wal_id == entry.asset.wal_id), None
        )
        if before is not None and before.content_version > entry.asset.content_version:
            return
        if old is None:
            self._numbers += 1
            self._items[where] = _item(entry, self._numbers, (entry.asset,), 1, now_ms, now_ms, announced_ms)
            return
        assets = (*others, entry.asset)
        if entry.asset.role == "data" or not _has_data(old):
            made = _item(
                entry,
                old.number,
                assets,
                old.revision + 1,
                old.created_at_ms,
                now_ms,
                announced_ms or old.at_ms,
            )
        else:
            made = msgspec.structs.replace(
                old, assets=assets, revision=old.revision + 1, updated_at_ms=now_ms
            )
        if _facts(made) != _facts(old):
            self._items[where] = made

    def find_items(self, search: Search) -> list[CatalogueItem]:
        fitting = [each for each in self.visible() if matches(each, search)]
        fitting.sort(key=lambda each: (each.at_ms, each.number), reverse=True)
        if search.after is not None:
            fitting = [each for each in fitting if (each.at_ms, each.number) < search.after]
        return fitting[: search.limit]

    def item(self, collection_id: str, item_id: str) -> CatalogueItem | None:
        found = self._items.get((collection_id, item_id))
        return found if found is not None and _has_data(found) else None

    def collections(self) -> list[CollectionFigures]:
        names = sorted({each.collection_id for each in self.visible()})
        return [self._figures(name) for name in names]

    def collection_ids(self) -> list[str]:
        return sorted({each.collection_id for each in self._items.values()})

    def visible(self) -> list[CatalogueItem]:
        return [each for each in self._items.values() if _has_data(each)]

    @contextmanager
    def open(self) -> Iterator[ModelCatalogue]:
        """As a server is handed a reader for each call."""
        yield self

    def _figures(self, name: str) -> CollectionFigures:
        mine = [each for each in self.visible() if each.collection_id == name]
        spans = [span_of(each) for each in mine]
        return CollectionFigures(
            collection_id=name,
            items=len(mine),
            start_ms=min(start for start, _ in spans),
            end_ms=max(end for _, end in spans),
            bbox=hull([each.bbox for each in mine if each.bbox is not None]),
        )


def matches(item: CatalogueItem, search: Search) -> bool:
    """Is it one of those that the search looks for?"""
    start, end = span_of(item)
    return (
        (not search.collections or item.collection_id in search.collections)
        and (not search.ids or item.item_id in search.ids)
        and (search.from_ms is None or end >= search.from_ms)
        and (search.until_ms is None or start <= search.until_ms)
        and (search.bbox is None or (item.bbox is not None and touch(item.bbox, search.bbox)))
    )


def span_of(item: CatalogueItem) -> tuple[int, int]:
    start = item.at_ms if item.start_ms is None else item.start_ms
    return start, start if item.end_ms is None else max(start, item.end_ms)


def touch(one: Bbox, other: Bbox) -> bool:
    """Do two boxes have a point in common? Edges count."""
    return any(
        west <= right and left <= east and one[1] <= other[3] and other[1] <= one[3]
        for west, east in halves(one)
        for left, right in halves(other)
    )


def halves(box: Bbox) -> list[tuple[float, float]]:
    west, _, east, _ = box
    return [(west, east)] if west <= east else [(west, 180.0), (-180.0, east)]


def hull(boxes: Iterable[Bbox]) -> Bbox | None:
    """A box around all of them; one that crosses the antimeridian makes it go around the globe."""
    every = list(boxes)
    if not every:
        return None
    sides = [half for box in every for half in halves(box)]
    return (
        min(west for west, _ in sides),
        min(box[1] for box in every),
        max(east for _, east in sides),
        max(box[3] for box in every),
    )


def _has_data(item: CatalogueItem) -> bool:
    return any(asset.role == "data" for asset in item.assets)


def _facts(item: CatalogueItem) -> tuple[object, ...]:
    """All but what counts changes."""
    assets = tuple(sorted(item.assets, key=lambda each: each.wal_id))
    return item.start_ms, item.end_ms, item.at_ms, item.properties, item.bbox, item.geometry, assets


def _item(
    entry: CatalogueEntry,
    number: int,
    assets: tuple[AssetFacts, ...],
    revision: int,
    created_at_ms: int,
    now_ms: int,
    announced_ms: int,
) -> CatalogueItem:
    return CatalogueItem(
        number=number,
        collection_id=entry.collection_id,
        item_id=entry.item_id,
        start_ms=entry.start_ms,
        end_ms=entry.end_ms,
        at_ms=announced_ms if entry.at_ms is None else entry.at_ms,
        properties=msgspec.json.decode(entry.properties),
        bbox=entry.bbox,
        geometry=None if entry.geometry is None else msgspec.json.decode(entry.geometry),
        assets=assets,
        revision=revision,
        created_at_ms=created_at_ms,
        updated_at_ms=now_ms,
    )
