"""Units for those who ask about them: lists, the history's pages, dead messages."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kfm.core.evidence import Letter
from kfm.core.records import Unit
from kfm.core.sealing import SealedPage
from kfm.core.wal import DeadMessage, Known, Move, Stored, Wanted
from kfm.store import sealing, unit_counts, unit_lineage, unit_pages, unit_rows
from kfm.store.session import Database

_ENCODE = msgspec.json.Encoder().encode
# Each status that few units have is found by an index of its own.
LISTS = {
    "pending": "units.list_waiting",
    "in_progress": "units.list_leased",
    "failed": "units.list_stuck",
    "quarantined": "units.list_stuck",
}


class UnitQueries:
    """What can be asked without looking for work."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def unit(self, wal_id: str) -> Unit | None:
        stored = self.stored(wal_id)
        return None if stored is None else stored.unit

    def stored(self, wal_id: str) -> Stored | None:
        return unit_rows.get(self._database.session, wal_id)

    def history_of(self, wal_id: str) -> list[Move]:
        stored = self.stored(wal_id)
        return [] if stored is None else unit_pages.history(self._database.session, wal_id, stored.trail)

    def letters_of(self, wal_id: str) -> list[Letter]:
        stored = self.stored(wal_id)
        return [] if stored is None else unit_lineage.of_trail(self._database.session, stored.trail)

    def contents(self, wal_ids: Sequence[str]) -> dict[str, Known]:
        """What is known of the content of many units."""
        found = self._database.session.all("units.contents", wal_ids=_ENCODE(wal_ids).decode())
        return {row[0]: Known(*row) for row in found}

    def unit_counts(self) -> dict[tuple[str, str], int]:
        return {key: amount for key, (amount, _) in self.totals().items()}

    def totals(self) -> dict[tuple[str, str], tuple[int, int | None]]:
        return unit_counts.totals(self._database.session)

    def find_units(self, wanted: Wanted) -> list[Unit]:
        found = self._database.session.all(
            LISTS.get(wanted.status, "units.list"),
            status=wanted.status,
            dataset=wanted.dataset,
            error_code=wanted.error_code,
            since_ms=wanted.since_ms,
            row_limit=wanted.limit,
        )
        return [unit_rows.stored_from(row).unit for row in found]

    def oldest_open(self, dataset: str) -> Stored | None:
        found = [
            row[0]
            for name in ("units.oldest_open", "units.oldest_leased")
            if (row := self._database.session.one(name, dataset=dataset)) and row[0] is not None
        ]
        return self.stored(min(found)) if found else None

    # --- the history's pages ---------------------------------------------------------

    def pages_between(self, first: int, last: int, limit: int) -> list[SealedPage]:
        return sealing.pages(self._database.session, (first, last), limit)

    def pages_written(self, after: int = 0) -> int:
        row = self._database.session.one("unit_pages.count", after_number=after)
        assert row is not None
        return int(row[0])

    # --- dead messages ---------------------------------------------------------------

    def dead_messages(self, state: str = "held", error_code: str = "", limit: int = 100) -> list[DeadMessage]:
        found = self._database.session.all(
            "dead_messages.list", state=state, error_code=error_code, row_limit=limit
        )
        return [DeadMessage(*row) for row in found]

    def dead_message(self, envelope_hash: str) -> list[DeadMessage]:
        found = self._database.session.all("dead_messages.bodies", envelope_hash=envelope_hash)
        ordered = [(*row[:5], *row[6:], row[5]) for row in found]
        return [DeadMessage(*values) for values in ordered]
