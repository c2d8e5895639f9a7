"""What collections hold, without counting: changes beside those of units, in the same transaction.

How many items are visible is exact. The extent is that of all items that were ever visible: it grows with
what comes and does not shrink with what is removed, which would need a look at all that is left.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping
from hashlib import sha256

from kfm.core.catalogue import Bbox, CollectionFigures
from kfm.store.session import Session

PREFIX = "catalogue:"
ITEMS = f"{PREFIX}items"
START, END = f"{PREFIX}start", f"{PREFIX}end"
WEST, SOUTH, EAST, NORTH = (f"{PREFIX}{side}" for side in ("west", "south", "east", "north"))
_LOW = (START, WEST, SOUTH)  # kept with the sign turned: only the highest of a figure is kept
BOXES_KEPT = 10_000  # in memory
DEGREE = 10_000_000  # a degree's parts, about a centimetre each

Highs = dict[tuple[str, str], int]
Line = tuple[str, str, int, int | None]  # as `unit_deltas.add` names them


class Told:
    """What one process knows to be in the ledger already, so that it need not be told again."""

    def __init__(self) -> None:
        self.highs: Highs = {}
        self.boxes: dict[Bbox, int] = {}

    def learn(self, figures: Figures) -> None:
        """They are durable now."""
        self.highs |= figures.written
        if len(self.boxes) > BOXES_KEPT:
            self.boxes.clear()
        self.boxes |= figures.boxes


class Figures:
    """What one transaction changes. Extents and boxes that are known to be told are not told again."""

    def __init__(self, told: Told | None = None) -> None:
        self._known = {} if told is None else told.boxes
        self._told = {} if told is None else told.highs
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
            session.tell_all("item_boxes.put", [(number, *sides, south, north)])
        return number

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
        """How far each side now reaches, where that is farther than was told."""
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
        told = self._told
        return {key: high for key, high in found.items() if key not in told or high > told[key]}

    def lines(self) -> list[Line]:
        """Whoever asks writes them."""
        lines: list[Line] = [
            (collection_id, ITEMS, amount, None) for collection_id, amount in self._amounts.items() if amount
        ]
        self.written = self._highs()
        lines += [(collection_id, name, 0, high) for (collection_id, name), high in self.written.items()]
        return lines

    def write(self, session: Session) -> None:
        if lines := self.lines():
            session.tell_all("unit_deltas.add", lines)


def box_number(bbox: Bbox) -> int:
    """Follows from the box alone, so nobody looks for it. Negative: items from before have their own."""
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
            bbox=_bbox(found),
        )
        for collection_id in sorted(amounts)
        if amounts[collection_id] > 0
        for found in (sides.get(collection_id, {}),)
    ]


def _bbox(found: Mapping[str, int]) -> Bbox | None:
    if WEST not in found:
        return None
    return found[WEST] / DEGREE, found[SOUTH] / DEGREE, found[EAST] / DEGREE, found[NORTH] / DEGREE
