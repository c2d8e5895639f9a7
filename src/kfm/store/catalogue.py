"""The embedded catalogue: what units tell about their objects, registered in the units' own transaction.

An item's row carries its data file; files that describe it are rows of their own, so neither waits for
the other, and either may come first. An item is visible once its data are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kfm.core.catalogue import AssetFacts, Bbox, Entry
from kfm.core.records import Record, Unit
from kfm.store import rows
from kfm.store.collection_figures import Figures
from kfm.store.session import Row, Session

_ENCODE = msgspec.json.Encoder().encode
_SORTED = msgspec.json.Encoder(order="sorted").encode
_ASSET = msgspec.json.Decoder(AssetFacts).decode
DATA = "data"
REPLICAS_MAX = 1000
_FACTS = ("start_ms", "end_ms", "at_ms", "west", "south", "east", "north", "geometry", "properties")
NUMBER, GEOMETRY, PROPERTIES, DATA_COLUMN, REVISION = 0, 10, 11, 12, 13


class Registered(Record, frozen=True):
    """What became of an entry."""

    status: str  # created | updated | no-op
    revision: int


def register(
    session: Session, entries: Sequence[Entry], now_ms: int, figures: Figures | None = None
) -> list[Registered]:
    """Enter them, each once. The answers stand in the order of the entries. Who gives figures writes them."""
    told, figures = figures, Figures() if figures is None else figures
    fresh: dict[tuple[str, str], Entry] = {}
    for entry in entries:
        key = (entry.collection_id, entry.item_id)
        # Of a data file and its index in one batch, the data make the item.
        if entry.asset.role == DATA or key not in fresh:
            fresh[key] = entry
    numbers = _insert(session, fresh, now_ms, figures)
    answers = []
    for entry in entries:
        key = (entry.collection_id, entry.item_id)
        if fresh[key] is entry and key in numbers:
            if entry.asset.role != DATA:
                _put_sidecar(session, numbers[key] or _number(session, entry), entry.asset)
            else:
                _show(figures, entry, now_ms if entry.at_ms is None else entry.at_ms, is_new=True)
            answers.append(_CREATED)
        else:
            answers.append(_merge(session, entry, now_ms, figures))
    if told is None:
        figures.write(session)
    return answers


def _show(figures: Figures, entry: Entry, at_ms: int, *, is_new: bool) -> None:
    if is_new:
        figures.appeared(entry.collection_id)
    start_ms = at_ms if entry.start_ms is None else entry.start_ms
    end_ms = at_ms if entry.end_ms is None else entry.end_ms
    figures.covers(entry.collection_id, start_ms, end_ms, entry.bbox)


_CREATED = Registered(status="created", revision=1)


def _insert(
    session: Session, fresh: dict[tuple[str, str], Entry], now_ms: int, figures: Figures
) -> dict[tuple[str, str], int | None]:
    """Those that were not there before, with their numbers where these are known already."""
    if not fresh:
        return {}
    lines = []
    for key in sorted(fresh):
        entry = fresh[key]
        box = None if entry.bbox is None else figures.box(session, entry.bbox)
        lines.append((*key, *_columns(entry, now_ms), now_ms, now_ms, box))
    entered = session.gather("items.insert", lines)
    return dict.fromkeys(fresh) if entered is None else {row[1:]: row[0] for row in entered}


def _number(session: Session, entry: Entry) -> int:
    row = session.one("items.get_for_update", collection_id=entry.collection_id, item_id=entry.item_id)
    assert row is not None, "items are never deleted"
    return int(row[NUMBER])


def _columns(entry: Entry, now_ms: int) -> tuple[Any, ...]:
    """From start_ms to data, as `items.insert` names them."""
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


# --- what is there already -----------------------------------------------------------


def _merge(session: Session, entry: Entry, now_ms: int, figures: Figures) -> Registered:
    row = session.one("items.get_for_update", collection_id=entry.collection_id, item_id=entry.item_id)
    assert row is not None, "items are never deleted"
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
    # Nobody could see it before its data came: to everybody else it is new.
    return Registered(status="created" if row[DATA_COLUMN] is None else "updated", revision=int(changed[0]))


def differences(session: Session, entry: Entry) -> dict[str, tuple[Any, Any]]:
    """Field by field, where what is registered differs from what would be: (is, would be)."""
    row = session.one("items.get_for_update", collection_id=entry.collection_id, item_id=entry.item_id)
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


def withdraw(session: Session, unit: Unit, now_ms: int) -> tuple[str, str, int] | None:
    """Its file is gone: an item without data is not shown, a sidecar no longer listed."""
    if unit.stac_collection_id is None or unit.stac_item_id is None:
        return None
    row = session.one(
        "items.get_for_update", collection_id=unit.stac_collection_id, item_id=unit.stac_item_id
    )
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
    """External catalogues are to be told of these revisions."""
    lines = [(replica, *one) for replica in replicas for one in sorted(changed)]
    if lines:
        session.tell_all("replica_items.want", lines)


def tell_replicas(session: Session, changed: tuple[str, str, int]) -> None:
    """Every external catalogue that follows ours is to be told of this revision."""
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
