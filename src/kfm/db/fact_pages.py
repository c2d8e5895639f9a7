"""What only one row tells, kept together for all that one transaction made: it repeats from unit to unit, so
that a page of a hundred needs a tenth of what a hundred rows would.

A unit's row has what decisions and searches go by. Its object's address, which never changes, is on the page
that its trail begins with; its item's name on the page that its trail ends with, as long as it is as that
success left it. An item's row has what searches go by; its name, and the geometry, properties and data file
that it began with, are at a place of its page. Whatever changes later stands in the row, as everything does
in rows from before there were pages.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b

import msgspec

from kfm.db.packing import LEVEL, unpacked
from kfm.db.session import Row, Session
from kfm.model.catalogue import AssetFacts, CatalogueEntry
from kfm.model.errors import StoreCorrupt
from kfm.model.patterns import late

Name = tuple[str, str]  # collection, item

DATA = "data"
DIGITS = 14  # down to the second, in six bytes
COLUMNS, PAGE, PLACE = 16, 16, 17  # of an item's row: its own, and where the rest of it is
ITEM_ID, GEOMETRY, DATA_COLUMN, CREATED, UPDATED = 2, 10, 12, 14, 15
_STAMP = late(r"([0-9]{8,})(?:[^0-9]([0-9]{4,6})(?![0-9]))?")  # a day and, maybe, a time of it
_ENCODE = msgspec.json.Encoder().encode


def item_key(collection_id: str, item_id: str) -> tuple[int, int]:
    """By which an item is found: the time in its name, as far as it has one, so that neighbours in time are
    neighbours on disk; and a digest that tells it from all others."""
    stamp = _STAMP.search(item_id)
    order = 0 if stamp is None else int((stamp[1] + (stamp[2] or ""))[:DIGITS])
    digest = blake2b(f"{collection_id}\n{item_id}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return order, int.from_bytes(digest, signed=True)


class _ItemFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An item on its page. Field order is what is stored."""

    item_id: str
    geometry: int | None  # which one of the page's
    properties: msgspec.Raw
    asset: tuple[str, int, str, str, int | None, str | None, str | None] | None  # without its role


class _Page(msgspec.Struct, frozen=True, array_like=True):
    units: list[tuple[str, str | None]]  # a unit, and its object's address or its item's name
    geometries: list[str]  # few different ones: sectors, sites, grids
    items: list[_ItemFacts]


_DECODE = msgspec.json.Decoder(_Page).decode


class FactPage:
    """A page under way. Its number is that of the history page of the same transition."""

    def __init__(self, number: int, units: Sequence[tuple[str, str | None]]) -> None:
        self.number = number
        self._units = units
        self._geometries: dict[str, int] = {}
        self._items: list[tuple[object, ...]] = []

    def add(self, entry: CatalogueEntry) -> int:
        """The item's place."""
        geometry, asset, facts = None, entry.asset, None
        if entry.geometry is not None:
            geometry = self._geometries.setdefault(entry.geometry, len(self._geometries))
        if asset.role == DATA:
            facts = (
                asset.wal_id,
                asset.content_version,
                asset.href,
                asset.media_type,
                asset.size,
                asset.etag,
                asset.checksum,
            )
        self._items.append((entry.item_id, geometry, msgspec.Raw(entry.properties.encode()), facts))
        return len(self._items) - 1

    def write(self, session: Session) -> None:
        data = _ENCODE((self._units, list(self._geometries), self._items))
        session.send("fact_pages.insert", number=self.number, packed=zlib.compress(data, LEVEL))


def _pages(session: Session, numbers: Iterable[int]) -> dict[int, _Page]:
    found = session.all("fact_pages.of", numbers=_ENCODE(sorted(numbers)).decode())
    return {number: _DECODE(unpacked(packed)) for number, packed in found}


# --- units -----------------------------------------------------------------------------


def objects(session: Session, trails: Mapping[str, str]) -> dict[str, str]:
    """Unit → its object's address, by the trails of those whose rows do not say it."""
    first = {wal_id: int(trail.partition(" ")[0]) for wal_id, trail in trails.items()}
    found = _told(session, first)
    for wal_id, number in first.items():
        if not found.get(wal_id):
            raise StoreCorrupt(f"Page {number} does not tell the address of unit {wal_id}.")
    return {wal_id: told for wal_id, told in found.items() if told is not None}


def items(session: Session, trails: Mapping[str, str]) -> dict[str, str | None]:
    """Unit → its item's name, by the trails of those that are as their success left them."""
    last = {wal_id: int(trail.rpartition(" ")[2]) for wal_id, trail in trails.items()}
    return _told(session, last)


def _told(session: Session, places: Mapping[str, int]) -> dict[str, str | None]:
    """Unit → what the page of this number tells of it."""
    if not places:
        return {}
    pages = _pages(session, {*places.values()})
    told = {number: dict(page.units) for number, page in pages.items()}
    return {wal_id: told.get(number, {}).get(wal_id) for wal_id, number in places.items()}


# --- items -----------------------------------------------------------------------------


def whole(session: Session, found: Sequence[Row]) -> list[Row]:
    """Rows of items with everything that they tell."""
    numbers = {row[PAGE] for row in found if row[PAGE] is not None}
    pages = _pages(session, numbers) if numbers else {}
    return [row[:COLUMNS] if row[PAGE] is None else _whole(row, pages[row[PAGE]]) for row in found]


def _whole(row: Row, page: _Page) -> Row:
    facts = page.items[row[PLACE]]
    geometry, properties, data = row[GEOMETRY : DATA_COLUMN + 1]
    if not properties:  # as it began
        geometry = None if facts.geometry is None else page.geometries[facts.geometry]
        properties = bytes(facts.properties).decode()
    if data == "":
        assert facts.asset is not None, "an item that is shown has data"
        data = _ENCODE(AssetFacts(DATA, *facts.asset)).decode()
    return (
        *row[:ITEM_ID],
        facts.item_id,
        *row[ITEM_ID + 1 : GEOMETRY],
        geometry,
        properties,
        data,
        *row[DATA_COLUMN + 1 : COLUMNS - 1],
        row[UPDATED] or row[CREATED],
    )


def known_items(session: Session, names: Iterable[Name]) -> list[Row]:
    """Those of these that are there, with everything that they tell."""
    wanted = {*names}
    pairs = [(*name, *item_key(*name)) for name in sorted(wanted)]
    found = whole(session, session.all("items.known", pairs=_ENCODE(pairs).decode()))
    return [row for row in found if row[1 : ITEM_ID + 1] in wanted]
