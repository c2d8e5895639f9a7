"""The embedded STAC catalogue: registered in the units' own transactions, searched, replicated."""

from __future__ import annotations

import heapq
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from typing import Any

import msgspec

from kfm.db import fact_pages, rows
from kfm.db.fact_pages import FactPage, Name, item_key, known_items
from kfm.db.session import Database, Row, Session
from kfm.model.catalogue import (
    AssetFacts,
    Bbox,
    CatalogueEntry,
    CatalogueItem,
    CollectionFigures,
    Owed,
    Search,
)
from kfm.model.errors import SchemaViolation
from kfm.model.records import Record, Unit
from kfm.model.times import last_ms


class Replicas:
    """The outbox of external catalogues: which items each still needs. Each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def claim(self, replica: str, limit: int, claim_ms: int) -> list[Owed]:
        """The longest due, claimed exclusively until the claim ends: one delivery in flight per item."""
        session = self._database.session
        now_ms = session.now_ms()
        due = session.one("replica_items.due", replica=replica, now_ms=now_ms, last_ms=last_ms(now_ms))
        if due is None:
            return []

        def change(session: Session) -> list[Owed]:
            now_ms = session.now_ms()
            session.send("replica_items.make_due", replica=replica, last_ms=last_ms(now_ms))
            found = session.all(
                "replica_items.claim",
                replica=replica,
                now_ms=now_ms,
                until_ms=now_ms + claim_ms,
                row_limit=limit,
            )
            return [Owed(*row) for row in found]

        return self._database.write(change)

    def delivered(self, replica: str, done: Iterable[tuple[Owed, int]]) -> None:
        """Record the revision that was sent; what was requested since then is due again.

        Where the claim was over, a later one may have sent something newer before us: it is sent once more.
        """
        kept = list(done)

        def change(session: Session) -> None:
            for owed, revision in kept:
                which = {"replica": replica, "collection_id": owed.collection_id, "item_id": owed.item_id}
                sent = max(revision, owed.wanted)
                if not session.all("replica_items.delivered", sent=sent, until_ms=owed.until_ms, **which):
                    session.all("replica_items.outrun", **which)

        if kept:
            self._database.write(change)

    def put_back(
        self, replica: str, owed: Iterable[Owed], not_before_ms: int, *, charged: bool = True
    ) -> None:
        """Release them, unless another process has claimed them by now. What was not tried is not charged.

        What was tried may have landed all the same: where the claim was over, it is sent once more.
        """
        kept = list(owed)

        def change(session: Session) -> None:
            for one in kept:
                which = {"replica": replica, "collection_id": one.collection_id, "item_id": one.item_id}
                found = session.all(
                    "replica_items.put_back",
                    not_before_ms=not_before_ms,
                    untried=0 if charged else 1,
                    until_ms=one.until_ms,
                    **which,
                )
                if charged and not found:
                    session.all("replica_items.outrun", **which)

        if kept:
            self._database.write(change)

    def again(self, replica: str, items: Iterable[tuple[str, str, int]]) -> None:
        """Deliver these once more, at once, whatever was sent before."""
        lines = [(replica, *item) for item in items]
        if lines:
            self._database.write(lambda session: session.bulk("replica_items.again", lines))

    def backlog(self, replica: str) -> int:
        row = self._database.session.one("replica_items.backlog", replica=replica)
        assert row is not None
        return int(row[0])

    def now_ms(self) -> int:
        """The time that claims live by."""
        return self._database.session.now_ms()


_ENCODE = msgspec.json.Encoder().encode
_SORTED = msgspec.json.Encoder(order="sorted").encode
_ASSET = msgspec.json.Decoder(AssetFacts).decode
DATA = "data"
REPLICAS_MAX = 1000
_FACTS = ("start_ms", "end_ms", "at_ms", "west", "south", "east", "north", "geometry", "properties")
NUMBER, ITEM_ID, GEOMETRY, PROPERTIES, DATA_COLUMN, REVISION = 0, 2, 10, 11, 12, 13


class Registered(Record, frozen=True):
    """The outcome of registering an entry."""

    status: str  # created | updated | no-op
    revision: int


def register(
    session: Session,
    entries: Sequence[CatalogueEntry],
    now_ms: int,
    page: FactPage,
    figures: Figures | None = None,
) -> list[Registered]:
    """Enter them, each once, their facts on this page; answers in the order of the entries. A caller that
    gives figures writes them."""
    own = figures is None
    figures = Figures() if figures is None else figures
    fresh: dict[tuple[str, str], CatalogueEntry] = {}
    for entry in entries:
        key = (entry.collection_id, entry.item_id)
        # Of a data file and its index in one batch, the data make the item.
        if entry.asset.role == DATA or key not in fresh:
            fresh[key] = entry
    numbers = _insert(session, fresh, now_ms, page, figures)
    if entries:
        page.write(session)
    answers = []
    for entry in entries:
        key = (entry.collection_id, entry.item_id)
        if key not in numbers or fresh[key] is not entry:
            answers.append(_merge(session, entry, now_ms, figures))
            continue
        if entry.asset.role != DATA:
            _put_sidecar(session, numbers[key] or _held(session, entry)[NUMBER], entry.asset)
        else:
            _show(figures, entry, now_ms if entry.at_ms is None else entry.at_ms, is_new=True)
        answers.append(_CREATED)
    if own:
        figures.write(session)
    return answers


def _show(figures: Figures, entry: CatalogueEntry, at_ms: int, *, is_new: bool) -> None:
    if is_new:
        figures.appeared(entry.collection_id)
    start_ms = at_ms if entry.start_ms is None else entry.start_ms
    end_ms = at_ms if entry.end_ms is None else entry.end_ms
    figures.covers(entry.collection_id, start_ms, end_ms, entry.bbox)


_CREATED = Registered(status="created", revision=1)


def _insert(
    session: Session, fresh: dict[Name, CatalogueEntry], now_ms: int, page: FactPage, figures: Figures
) -> dict[Name, int | None]:
    """Those that were not there before, with their numbers where these are known already."""
    names = sorted(fresh.keys() - figures.old_items(session, fresh))
    if not names:
        return {}
    lines = []
    for name in names:
        entry = fresh[name]
        box = None if entry.bbox is None else figures.box(session, entry.bbox)
        lines.append(
            (
                entry.collection_id,
                entry.start_ms,
                entry.end_ms,
                now_ms if entry.at_ms is None else entry.at_ms,
                *(entry.bbox or _NOWHERE),
                _IN_PAGE if entry.asset.role == DATA else None,
                now_ms,
                box,
                page.number,
                page.add(entry),
                *item_key(*name),
            )
        )
    entered = session.gather("items.insert", lines)
    if entered is None:
        return dict.fromkeys(names)
    keys = {line[-2:]: name for line, name in zip(lines, names, strict=True)}
    return {keys[row[1:]]: row[0] for row in entered}


def _find(session: Session, collection_id: str, item_id: str) -> Row | None:
    """The item of this name, locked until this transaction ends."""
    order, digest = item_key(collection_id, item_id)
    row = session.one("items.get_for_update", name_order=order, name_digest=digest)
    if row is None:
        row = session.one("items.get_old_for_update", collection_id=collection_id, item_id=item_id)
    if row is None:
        return None
    (found,) = fact_pages.whole(session, [row])
    if found[1 : ITEM_ID + 1] != (collection_id, item_id):
        raise SchemaViolation(
            f"Items {item_id!r} and {found[ITEM_ID]!r} can't be told apart by their digests."
        )
    return found


def _held(session: Session, entry: CatalogueEntry) -> Row:
    row = _find(session, entry.collection_id, entry.item_id)
    assert row is not None, "items are never deleted"
    return row


def _columns(entry: CatalogueEntry, now_ms: int) -> tuple[Any, ...]:
    """From start_ms to data, as `items.change` names them."""
    at_ms = entry.at_ms
    return (
        entry.start_ms,
        entry.end_ms,
        at_ms if at_ms is not None else now_ms,
        *(entry.bbox or _NOWHERE),
        entry.geometry,
        entry.properties,
        _ENCODE(entry.asset).decode() if entry.asset.role == DATA else None,
    )


_NOWHERE = (None, None, None, None)
_IN_PAGE = ""


# --- what is there already -----------------------------------------------------------


def _merge(session: Session, entry: CatalogueEntry, now_ms: int, figures: Figures) -> Registered:
    row = _held(session, entry)
    number, revision = row[NUMBER], row[REVISION]
    if entry.asset.role != DATA:
        facts = _facts(entry.asset)
        if session.one("assets.get", item=number, role=entry.asset.role) == (facts,):
            return Registered(status="no-op", revision=revision)
        _put_sidecar(session, number, entry.asset)
        return Registered(status="updated", revision=_touched(session, number, now_ms))
    at_ms = row[5] if entry.at_ms is None else entry.at_ms
    columns = (*_columns(entry, at_ms),)
    if columns == row[3:13]:
        return Registered(status="no-op", revision=revision)
    names = (
        "start_ms",
        "end_ms",
        "at_ms",
        "west",
        "south",
        "east",
        "north",
        "geometry",
        "properties",
        "data",
    )
    changed = session.one(
        "items.change", number=number, updated_at_ms=now_ms, **dict(zip(names, columns, strict=True))
    )
    assert changed is not None
    box = None if entry.bbox is None else figures.box(session, entry.bbox)
    session.all("item_boxes.assign", number=number, box=box)
    _show(figures, entry, at_ms, is_new=row[DATA_COLUMN] is None)
    # It was not visible before its data came: to readers it is new.
    return Registered(status="created" if row[DATA_COLUMN] is None else "updated", revision=int(changed[0]))


def differences(session: Session, entry: CatalogueEntry) -> dict[str, tuple[Any, Any]]:
    """Field by field, where what is registered differs from what would be: (is, would be)."""
    row = _find(session, entry.collection_id, entry.item_id)
    if row is None:
        return {}
    found: dict[str, tuple[Any, Any]] = {}
    if entry.asset.role == DATA:
        if row[DATA_COLUMN] is None:
            return {}
        was = _ASSET(row[DATA_COLUMN])
        pairs: dict[str, tuple[Any, Any]] = {
            "start_ms": (row[3], entry.start_ms),
            "end_ms": (row[4], entry.end_ms),
            "bbox": (_bbox(row), entry.bbox),
            "geometry": (row[GEOMETRY], entry.geometry),
            "properties": (row[PROPERTIES], entry.properties),
        }
    else:
        held = session.one("assets.get", item=row[NUMBER], role=entry.asset.role)
        if held is None:
            return {}
        was, pairs = _ASSET(held[0]), {}
    found |= {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    for name in AssetFacts.__struct_fields__:
        old, new = getattr(was, name), getattr(entry.asset, name)
        if old != new and not (name == "checksum" and None in (old, new)):
            found[f"asset.{name}"] = (old, new)
    return found


def take_out(session: Session, unit: Unit, now_ms: int) -> None:
    """Withdraw, here and at every external catalogue that follows ours."""
    withdrawn = withdraw(session, unit, now_ms)
    if withdrawn is not None:
        notify_replicas(session, withdrawn)


def withdraw(session: Session, unit: Unit, now_ms: int) -> tuple[str, str, int] | None:
    """Its file is gone: an item without data is not shown, a sidecar no longer listed."""
    if unit.stac_collection_id is None or unit.stac_item_id is None:
        return None
    row = _find(session, unit.stac_collection_id, unit.stac_item_id)
    if row is None:
        return None
    role = str(unit.extra.get("asset", DATA))
    if role != DATA:
        session.one("assets.remove", item=row[NUMBER], role=role)
        return (row[1], row[2], _touched(session, row[NUMBER], now_ms))
    values = dict(zip(_FACTS, row[3:12], strict=True))
    if row[DATA_COLUMN] is not None:
        figures = Figures()
        figures.vanished(row[1])
        figures.write(session)
    changed = session.one("items.change", number=row[NUMBER], updated_at_ms=now_ms, data=None, **values)
    assert changed is not None
    return (row[1], row[2], int(changed[0]))


def want(session: Session, replicas: Sequence[str], changed: Sequence[tuple[str, str, int]]) -> None:
    """Mark these revisions as due at the external catalogues."""
    lines = [(replica, *one) for replica in replicas for one in sorted(changed)]
    if lines:
        session.send_all("replica_items.want", lines)


def notify_replicas(session: Session, changed: tuple[str, str, int]) -> None:
    """Mark this revision as due at every external catalogue that follows ours."""
    names: list[str] = []
    for _ in range(REPLICAS_MAX):
        row = session.one("replica_items.next_replica", after=names[-1] if names else "")
        if row is None:
            break
        names.append(row[0])
    want(session, names, [changed])


def _put_sidecar(session: Session, number: int, asset: AssetFacts) -> None:
    session.all("assets.put", item=number, role=asset.role, facts=_facts(asset))


def _facts(asset: AssetFacts) -> str:
    return rows.storable(_ENCODE(asset).decode())


def _touched(session: Session, number: int, now_ms: int) -> int:
    row = session.one("items.touch", number=number, updated_at_ms=now_ms)
    assert row is not None
    return int(row[0])


def _bbox(row: Row) -> Bbox | None:
    return None if row[6] is None else (row[6], row[7], row[8], row[9])


_ANY = msgspec.json.Decoder().decode
_COLLECTIONS_MAX = 10_000
_FOREVER = 2**62


class CatalogueReader:
    """Searches the catalogue."""

    def __init__(self, database: Database) -> None:
        self._session = database.session

    def item(self, collection_id: str, item_id: str) -> CatalogueItem | None:
        found = self._by_ids([collection_id], [item_id])
        return self._items(found)[0] if found else None

    def find_items(self, search: Search) -> list[CatalogueItem]:
        """The newest first; those after `search.after` only."""
        collections = search.collections or tuple(self.collection_ids())
        if search.ids:
            chosen = [row for row in self._by_ids(collections, search.ids) if _fits(row, search)]
            found = sorted(chosen, key=_order)[: search.limit]
        else:
            pages = [self._page(one, box, search) for one in collections for box in _boxes(search.bbox)]
            newest = _distinct(heapq.merge(*pages, key=_order))
            found = fact_pages.whole(self._session, list(islice(newest, search.limit)))
        return self._items(found)

    def collection_ids(self) -> list[str]:
        """Also of those that have none any more."""
        found: list[str] = []
        for _ in range(_COLLECTIONS_MAX):
            row = self._session.one("items.next_collection", after=found[-1] if found else "")
            if row is None:
                break
            found.append(row[0])
        return found

    def collections(self) -> list[CollectionFigures]:
        """From figures that are kept, not by counting."""
        return read(self._session)

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
        names = {(collection_id, item_id) for collection_id in collections for item_id in ids}
        found = known_items(self._session, names)
        return [row for row in found if row[DATA_COLUMN] is not None]

    def _items(self, found: Sequence[Row]) -> list[CatalogueItem]:
        beside: dict[int, list[AssetFacts]] = {}
        if found:
            numbers = _ENCODE([row[0] for row in found]).decode()
            for number, _role, facts in self._session.all("assets.of", items=numbers):
                beside.setdefault(number, []).append(_ASSET(facts))
        return [_item(row, beside.get(row[0], ())) for row in found]


def _item(row: Row, beside: Iterable[AssetFacts]) -> CatalogueItem:
    return CatalogueItem(
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


PREFIX = rows.CATALOGUE
ITEMS = f"{PREFIX}items"
START, END = f"{PREFIX}start", f"{PREFIX}end"
WEST, SOUTH, EAST, NORTH = (f"{PREFIX}{side}" for side in ("west", "south", "east", "north"))
_LOW = (START, WEST, SOUTH)  # kept with the sign turned: only the highest of a figure is kept
BOXES_KEPT = 10_000  # in memory
DEGREE = 10_000_000  # a degree's parts, about a centimetre each

Highs = dict[tuple[str, str], int]
Line = tuple[str, str, int, int | None]  # as `unit_deltas.add` names them


class KnownFigures:
    """Figures that one process knows to be in the ledger, so that it need not write them again."""

    def __init__(self) -> None:
        self.highs: Highs = {}
        self.boxes: dict[Bbox, int] = {}
        self.has_old_items = True  # until looked: of ledgers from before pages of items

    def learn(self, figures: Figures) -> None:
        """They are durable now."""
        self.highs |= figures.written
        self.has_old_items = figures.has_old_items
        if len(self.boxes) > BOXES_KEPT:
            self.boxes.clear()
        self.boxes |= figures.boxes


class Figures:
    """Figures of collections that one transaction changes. Known extents and boxes are not written again."""

    def __init__(self, known: KnownFigures | None = None) -> None:
        self._known = {} if known is None else known.boxes
        self._known_highs = {} if known is None else known.highs
        self.has_old_items = known is None or known.has_old_items
        self.boxes: dict[Bbox, int] = {}  # new to the process, and their numbers
        self.written: Highs = {}
        self._amounts: Counter[str] = Counter()
        self._spans: dict[str, list[int]] = {}  # start, end
        self._boxes: dict[str, set[Bbox]] = {}  # few different ones: sectors, sites, grids

    def box(self, session: Session, bbox: Bbox) -> int:
        """The number of a box in the spatial index, which has it from here on."""
        number = self._known.get(bbox) or self.boxes.get(bbox)
        if number is None:
            number = self.boxes[bbox] = box_number(bbox)
            west, south, east, north = bbox
            # What crosses the antimeridian is looked for everywhere.
            sides = (west, east) if west <= east else (-180.0, 180.0)
            session.send_all("item_boxes.put", [(number, *sides, south, north)])
        return number

    def old_items(self, session: Session, names: Iterable[Name]) -> set[Name]:
        """Those of a ledger from before that are found by their whole names. No more are ever added."""
        if self.has_old_items and session.one("items.any_old") is None:
            self.has_old_items = False
        if not self.has_old_items:
            return set()
        return {(row[1], row[ITEM_ID]) for row in known_items(session, names)}

    def appeared(self, collection_id: str) -> None:
        self._amounts[collection_id] += 1

    def vanished(self, collection_id: str) -> None:
        self._amounts[collection_id] -= 1

    def covers(self, collection_id: str, start_ms: int, end_ms: int, bbox: Bbox | None) -> None:
        span = self._spans.get(collection_id)
        if span is None:
            self._spans[collection_id] = [start_ms, max(start_ms, end_ms)]
        else:
            if start_ms < span[0]:
                span[0] = start_ms
            if end_ms > span[1]:
                span[1] = end_ms
        if bbox is not None:
            self._boxes.setdefault(collection_id, set()).add(bbox)

    def _highs(self) -> Highs:
        """How far each side now reaches, where that is farther than is known."""
        found: Highs = {}
        for collection_id, (start_ms, end_ms) in self._spans.items():
            found[collection_id, START], found[collection_id, END] = -start_ms, end_ms
        for collection_id, boxes in self._boxes.items():
            # What crosses the antimeridian reaches around the world.
            plain = [box if box[0] <= box[2] else (-180.0, box[1], 180.0, box[3]) for box in boxes]
            found[collection_id, WEST] = -round(min(box[0] for box in plain) * DEGREE)
            found[collection_id, SOUTH] = -round(min(box[1] for box in plain) * DEGREE)
            found[collection_id, EAST] = round(max(box[2] for box in plain) * DEGREE)
            found[collection_id, NORTH] = round(max(box[3] for box in plain) * DEGREE)
        known = self._known_highs
        return {key: high for key, high in found.items() if key not in known or high > known[key]}

    def lines(self) -> list[Line]:
        """The caller writes them."""
        lines: list[Line] = [
            (collection_id, ITEMS, amount, None) for collection_id, amount in self._amounts.items() if amount
        ]
        self.written = self._highs()
        lines += [(collection_id, name, 0, high) for (collection_id, name), high in self.written.items()]
        return lines

    def write(self, session: Session) -> None:
        if lines := self.lines():
            session.send_all("unit_deltas.add", lines)


def box_number(bbox: Bbox) -> int:
    """Follows from the box alone, so no look-up is needed. Negative: items from before have their own."""
    digest = sha256(struct.pack(">4d", *bbox)).digest()
    return -1 - (int.from_bytes(digest[:8]) >> 2)


def read(session: Session) -> list[CollectionFigures]:
    """Of the collections that have a visible item."""
    amounts: dict[str, int] = {}
    sides: dict[str, dict[str, int]] = {}
    for collection_id, name, amount, high in session.all("unit_totals.list"):
        if name == ITEMS:
            amounts[collection_id] = int(amount)
        elif name.startswith(PREFIX):
            sides.setdefault(collection_id, {})[name] = -high if name in _LOW else high
    return [
        CollectionFigures(
            collection_id=collection_id,
            items=amounts[collection_id],
            start_ms=found.get(START),
            end_ms=found.get(END),
            bbox=_joined_bbox(found),
        )
        for collection_id in sorted(amounts)
        if amounts[collection_id] > 0
        for found in (sides.get(collection_id, {}),)
    ]


def _joined_bbox(found: Mapping[str, int]) -> Bbox | None:
    if WEST not in found:
        return None
    return found[WEST] / DEGREE, found[SOUTH] / DEGREE, found[EAST] / DEGREE, found[NORTH] / DEGREE
