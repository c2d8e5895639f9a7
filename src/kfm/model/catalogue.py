"""The catalogue's own records: facts about items and assets, of which STAC is made on demand."""

from typing import Any

from kfm.model.records import Record

Bbox = tuple[float, float, float, float]  # west, south, east, north; west > east crosses the antimeridian


class AssetFacts(Record, frozen=True, gc=False):
    """One file of an item: the data themselves, or what describes them."""

    role: str  # data, or a sidecar's role
    wal_id: str
    content_version: int
    href: str
    media_type: str
    size: int | None = None
    etag: str | None = None
    checksum: str | None = None  # sha256:HEX, where the bytes were read


class CatalogueEntry(Record, frozen=True, gc=False):
    """What one unit tells the catalogue: its asset, and the item that the asset belongs to."""

    collection_id: str
    item_id: str
    asset: AssetFacts
    start_ms: int | None
    end_ms: int | None
    properties: str  # JSON with sorted names: of the item, without times, checksums and links
    bbox: Bbox | None = None
    geometry: str | None = None  # GeoJSON text; None where nothing is known honestly
    at_ms: int | None = None  # STAC's datetime: reference time or start; None: unknown, then the announcement


class CatalogueItem(Record, frozen=True):
    """An item as the catalogue has it. Rendered by `kfm.nodd.catalogue.stac_items`."""

    number: int
    collection_id: str
    item_id: str
    start_ms: int | None
    end_ms: int | None
    at_ms: int
    properties: dict[str, Any]
    bbox: Bbox | None
    geometry: dict[str, Any] | None
    assets: tuple[AssetFacts, ...]
    revision: int
    created_at_ms: int
    updated_at_ms: int


class Search(Record, frozen=True):
    """A search. Items come newest first, by (at_ms, number)."""

    collections: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    bbox: Bbox | None = None
    from_ms: int | None = None  # items that overlap the span
    until_ms: int | None = None
    after: tuple[int, int] | None = None  # (at_ms, number) of the last item seen
    limit: int = 100


class CollectionFigures(Record, frozen=True):
    """What a collection holds."""

    collection_id: str
    items: int
    start_ms: int | None
    end_ms: int | None
    bbox: Bbox | None


class Owed(Record, frozen=True):
    """An item that a replica does not show as it is. Field order is column order."""

    collection_id: str
    item_id: str
    wanted: int  # counts the requests for its delivery; at least its revision
    sent: int
    tries: int
    until_ms: int  # the claim's end, and its fence
