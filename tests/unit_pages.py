"""What rows of units and items tell together with their pages, for tests that look at a database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from kfm.db import catalogue, fact_pages, unit_history
from kfm.db.catalogue import Registered
from kfm.db.packing import joined
from kfm.db.session import Session
from kfm.model.catalogue import CatalogueEntry


def register(session: Session, entries: Sequence[CatalogueEntry], now_ms: int) -> list[Registered]:
    """Items of units that are not there, on a page of their own."""
    page = fact_pages.FactPage(unit_history.begin(session), [])
    return catalogue.register(session, entries, now_ms, page)


Rows = Callable[[str], list[Any]]  # a statement's rows

_ITEMS = """\
SELECT number, collection_id, item_id, start_ms, end_ms, at_ms, west, south, east, north, geometry,
  properties, data, revision, created_at_ms, updated_at_ms, page, place
FROM items"""


class _Pages:
    """As much of a session as reading pages needs."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def all(self, name: str, numbers: str) -> list[Any]:
        assert name == "fact_pages.of"
        wanted = set(msgspec.json.decode(numbers))
        return [row for row in self._rows("SELECT number, packed FROM fact_pages") if row[0] in wanted]


def items(rows: Rows) -> list[tuple[Any, ...]]:
    """number, collection_id, item_id, start_ms, end_ms, …, geometry, properties, data, …"""
    session: Any = _Pages(rows)
    return fact_pages.whole(session, rows(_ITEMS))


def data_files(rows: Rows) -> list[tuple[int, str | None]]:
    """(number, the data's facts) of each item."""
    return [(row[0], row[12]) for row in items(rows)]


def objects(rows: Rows) -> dict[str, str]:
    """Unit → its object's address."""
    session: Any = _Pages(rows)
    found = rows("SELECT wal_id, object_uri, trail FROM units")
    told = fact_pages.objects(session, {wal_id: trail for wal_id, uri, trail in found if not uri})
    return {wal_id: uri or told[wal_id] for wal_id, uri, _ in found}


def item_names(rows: Rows) -> dict[str, str | None]:
    """Unit → its item's name."""
    session: Any = _Pages(rows)
    found = rows("SELECT wal_id, stac_item_id, stac_collection_id, trail FROM units")
    settled = {row[0]: row[3] for row in found if row[1] is None and row[2] is not None}
    told = fact_pages.items(session, settled)
    return {row[0]: told.get(row[0], row[1]) for row in found}


def bodies(rows: Rows, where: str) -> list[str]:
    """Of messages of the outbox, by number."""
    return [joined(*row) for row in rows(f"SELECT body, packed FROM outbox WHERE {where} ORDER BY number")]


def members(rows: Rows, where: str) -> list[str]:
    """Of pages of the history, by number."""
    return [
        joined(*row) for row in rows(f"SELECT members, packed FROM unit_pages WHERE {where} ORDER BY number")
    ]
