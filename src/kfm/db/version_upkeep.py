"""Upkeep of versions: those that are kept whole get trees, and what no version needs any more goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from kfm.db import leases, rows
from kfm.db.session import Database, Session
from kfm.db.versions import VersionReader, put_version, stage
from kfm.model.errors import LostLease
from kfm.model.versions import rebuilt, whole_id

ROWS_MAX = 1000  # that one transaction removes

Conversion = Literal["done", "damaged", "busy"]


class _SweptTable(NamedTuple):
    ids: str
    delete: str
    key: str


PAGES = _SweptTable("version_pages.ids", "version_pages.delete", "page_id")
ITEMS = _SweptTable("version_items.ids", "version_items.delete", "digest")


class SweptVersions(NamedTuple):
    """What no version needed."""

    pages: int
    items: int


class VersionUpkeep:
    """Keeps the tables behind versions. Each step is a transaction of its own, and can be the last."""

    def __init__(self, database: Database, versions: VersionReader) -> None:
        self._database = database
        self._session = database.session
        self._versions = versions

    def count_whole(self) -> int:
        row = self._session.one("versions.count_whole")
        assert row is not None
        return int(row[0])

    def is_whole(self, version_id: str) -> bool:
        row = self._session.one("versions.get", version_id=version_id)
        return row is not None and row[1] is None

    def next_whole(self, after: str) -> tuple[str, str] | None:
        """The id of the next version that is kept whole, and its dataset's."""
        row = self._session.one("versions.whole", after_id=after, row_limit=1)
        return (row[0], row[1]) if row is not None else None

    def convert(self, version_id: str, dataset_id: str) -> Conversion:
        """Give a version its tree. One whose manifest is not what its id says stays as it is: nothing is made
        of damaged text."""
        row = self._session.one("versions.get", version_id=version_id)
        if row is None or row[1] is not None:
            return "done"
        manifest = rows.manifest_from(row[0])
        if whole_id(manifest) != version_id:
            return "damaged"
        collections = self._collections(self._session)
        head = self._versions.head(dataset_id)
        staged = stage(rebuilt(manifest, head[1] if head is not None else None))

        def change(session: Session) -> Conversion:
            # What it shares with the head is there as long as nothing was collected since.
            if collections is None or self._collections(session) != collections:
                return "busy"
            put_version(session, version_id, dataset_id, staged)
            return "done"

        return self._database.write(change)

    def _collections(self, session: Session) -> int | None:
        """How many collections there were; None: one is under way."""
        row = session.one("locks.get_for_share", scope=leases.COLLECTOR)
        assert row is not None, "the first migration makes it"
        lock = rows.lock_from(row)
        return lock.fence if lock.holder is None else None

    def sweep(self, fence: int, check: Callable[[], None]) -> SweptVersions:
        """Remove the pages and items that no version has. For the collector, by its fence: nothing is
        promoted meanwhile. `check` is called between transactions, and raises once it may not go on."""
        seen, after = set[str](), ""
        while found := self._session.all("versions.trees", after_id=after, row_limit=ROWS_MAX):
            for _, *trees in found:
                for tree_id in trees:
                    self._versions.mark(tree_id, seen)
            after = found[-1][0]
        return SweptVersions(
            self._sweep(PAGES, seen, fence, check),
            self._sweep(ITEMS, seen, fence, check),
        )

    def _sweep(self, table: _SweptTable, seen: set[str], fence: int, check: Callable[[], None]) -> int:
        removed, after = 0, ""
        while found := self._session.all(table.ids, after_id=after, row_limit=ROWS_MAX):
            after = found[-1][0]
            gone = [one for (one,) in found if one not in seen]

            def change(session: Session, gone: list[str] = gone) -> None:
                row = session.one("locks.get_for_update", scope=leases.COLLECTOR)
                lock = rows.lock_from(row) if row is not None else None
                ours = lock is not None and lock.holder is not None and lock.fence == fence
                if not ours or lock is None or lock.lease_until_ms <= session.now_ms():
                    raise LostLease(leases.COLLECTOR)
                session.many(table.delete, [{table.key: one} for one in gone])

            check()
            if gone:
                self._database.write(change)
                removed += len(gone)
        return removed
